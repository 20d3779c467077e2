package peer_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/peer"
	"github.com/stepvan/stepvan/tensor"
)

// matrix is a view of all of x as rows of width bytes.
func matrix(t testing.TB, x *tensor.Tensor, width int64) tensor.Strided {
	t.Helper()
	return columns(t, x, width, 0, width)
}

func expose(t testing.TB, p *pairtest.PeerOfCluster, v tensor.Strided, o peer.WindowOptions) *peer.Window {
	t.Helper()
	w, err := p.Expose(v, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.Close(pairtest.Context(t))) })
	return w
}

func finish(t testing.TB, h peer.Handle, err error) {
	t.Helper()
	require.NoError(t, err)
	require.NoError(t, h.Wait(pairtest.Context(t)))
}

func TestGetAndPut(t *testing.T) {
	eachVan(t, func(t *testing.T, v pairtest.Van) {
		for _, where := range []memory{heap, shared} {
			for self := range 2 {
				t.Run(fmt.Sprint(where, self), func(t *testing.T) {
					all := pairtest.NewPeers(t, pairtest.Options{Van: v}, 2)
					const rows, width = 300, 1000
					x := filled(t, all[0], where, rows*width, 1)
					var mu sync.Mutex
					var notes []string
					w := expose(t, all[0], matrix(t, x, width), peer.WindowOptions{
						Rights: peer.RightRead | peer.RightWrite,
						Note: func(from stepvan.Rank, note []byte) {
							mu.Lock()
							defer mu.Unlock()
							notes = append(notes, fmt.Sprintf("%d: %s %d", from, note, x.Bytes()[20*width+30]))
						},
					})
					p := all[1-self]
					for _, n := range []int64{1, 200} {
						dst := empty(t, p, heap, n*500)
						h, err := p.Get(matrix(t, dst, 500), w.Token(), []int64{10, 100})
						finish(t, h, err)
						for i := range n {
							require.Equal(t, x.Bytes()[(10+i)*width+100:][:500], dst.Bytes()[i*500:][:500])
						}
					}
					src := filled(t, p, shared, 200*500, 2)
					h, err := p.Put(matrix(t, src, 500), w.Token(), []int64{20, 30}, []byte("tick"))
					finish(t, h, err)
					require.Eventually(t, func() bool {
						_ = all[0].Handle(0).WaitFor(0)
						mu.Lock()
						defer mu.Unlock()
						return len(notes) == 1
					}, pairtest.WaitLimit, 1)
					require.Equal(t, fmt.Sprintf("%d: tick %d", p.Rank(), src.Bytes()[0]), notes[0])
					for i := range int64(200) {
						require.Equal(t, src.Bytes()[i*500:][:500], x.Bytes()[(20+i)*width+30:][:500])
					}
				})
			}
		}
	})
}

func TestWhatAWindowRefuses(t *testing.T) {
	eachVan(t, func(t *testing.T, v pairtest.Van) {
		for _, where := range []memory{heap, shared} {
			t.Run(fmt.Sprint(where), func(t *testing.T) {
				all := pairtest.NewPeers(t, pairtest.Options{Van: v}, 3)
				x := filled(t, all[0], where, 1000, 1)
				w := expose(t, all[0], matrix(t, x, 10), peer.WindowOptions{Peers: []stepvan.Rank{1}})
				fails := func(p *pairtest.PeerOfCluster, token peer.Token, at []int64, want error, text string) {
					t.Helper()
					h, err := p.Get(matrix(t, empty(t, p, heap, 100), 10), token, at)
					if err == nil {
						err = h.Wait(pairtest.Context(t))
					}
					require.ErrorIs(t, err, want)
					require.ErrorContains(t, err, text)
				}
				forged := w.Token()
				forged[20]++
				fails(all[1], forged, nil, stepvan.ErrStale, "no such window")
				fails(all[1], peer.Token{}, nil, stepvan.ErrInvalid, "not the token")
				other := w.Token()
				other[4] = 2 // it is not this peer's
				fails(all[1], other, nil, stepvan.ErrStale, "no such window")
				fails(all[2], w.Token(), nil, stepvan.ErrRemote, "does not admit peer 2")
				fails(all[1], w.Token(), []int64{91, 0}, stepvan.ErrInvalid, "leaves the window")
				fails(all[1], w.Token(), []int64{-1, 0}, stepvan.ErrInvalid, "negative")
				h, err := all[1].Put(matrix(t, empty(t, all[1], heap, 100), 10), w.Token(), nil, nil)
				if err == nil {
					err = h.Wait(pairtest.Context(t))
				}
				require.ErrorContains(t, err, "may only be read")
				h, err = all[1].Get(matrix(t, empty(t, all[1], heap, 100), 10), w.Token(), []int64{90, 0})
				finish(t, h, err)
				require.NoError(t, w.Close(pairtest.Context(t)))
				fails(all[1], w.Token(), nil, stepvan.ErrStale, "closed")
			})
		}
	})
}

func TestAWindowOfAPeerThatDies(t *testing.T) {
	eachVan(t, func(t *testing.T, v pairtest.Van) {
		all := pairtest.NewPeers(t, pairtest.Options{Van: v}, 2)
		x := filled(t, all[0], shared, 1<<20, 1)
		w := expose(t, all[0], x.Strided(), peer.WindowOptions{})
		dst := empty(t, all[1], shared, 1<<20)
		h, err := all[1].Get(dst.Strided(), w.Token(), nil)
		finish(t, h, err)
		require.NoError(t, all[0].Transport.Abort())
		all[1].Service.Lost(all[0].Members()[0].ID, stepvan.ErrPeerLost) // as the scheduler says
		for err = nil; err == nil; {                                     // until the loss is known
			if h, err = all[1].Get(dst.Strided(), w.Token(), nil); err == nil {
				err = h.Wait(pairtest.Context(t))
			}
		}
		require.ErrorIs(t, err, stepvan.ErrPeerLost)
		require.ErrorContains(t, err, "peer 0")
	})
}
