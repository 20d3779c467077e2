package peer_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/internal/race"
	"github.com/stepvan/stepvan/peer"
	"github.com/stepvan/stepvan/tensor"
)

// planEverywhere has all peers make a plan.
func planEverywhere(t testing.TB, all []*pairtest.PeerOfCluster, name string, sends, recvs [][]peer.Move) []*peer.Plan {
	t.Helper()
	plans, errs := tryPlan(t, all, name, sends, recvs)
	for i, err := range errs {
		require.NoError(t, err, "peer %d", i)
	}
	t.Cleanup(func() {
		for _, pl := range plans {
			require.NoError(t, pl.Close(pairtest.Context(t)))
		}
	})
	return plans
}

func tryPlan(t testing.TB, all []*pairtest.PeerOfCluster, name string, sends, recvs [][]peer.Move) ([]*peer.Plan, []error) {
	plans, errs := make([]*peer.Plan, len(all)), make([]error, len(all))
	var g errgroup.Group
	for i, p := range all {
		g.Go(func() error {
			plans[i], errs[i] = p.Plan(pairtest.Context(t), name, sends[i], recvs[i])
			return nil
		})
	}
	_ = g.Wait()
	return plans, errs
}

// runEverywhere runs a plan at all peers.
func runEverywhere(t testing.TB, plans []*peer.Plan, version uint64) {
	t.Helper()
	ctx := pairtest.Context(t)
	var g errgroup.Group
	for _, pl := range plans {
		g.Go(func() error {
			h, err := pl.Begin(version)
			if err != nil {
				return err
			}
			return h.Wait(ctx)
		})
	}
	require.NoError(t, g.Wait())
}

// exchange is a plan in which each peer sends each other one, and itself, the columns of a matrix that belong to it.
type exchange struct {
	srcs, dsts   []*tensor.Tensor
	sends, recvs [][]peer.Move
	width        int64 // of a block of columns
}

func newExchange(t testing.TB, all []*pairtest.PeerOfCluster, rows, width int64, from, to memory) *exchange {
	n := int64(len(all))
	x := &exchange{width: width, sends: make([][]peer.Move, n), recvs: make([][]peer.Move, n)}
	for i, p := range all {
		x.srcs = append(x.srcs, filled(t, p, from, rows*width*n, uint64(i)))
		x.dsts = append(x.dsts, empty(t, p, to, rows*width*n))
	}
	for i := range all {
		for k := range all {
			id := uint64(i*len(all) + k)
			label := fmt.Sprintf("block %d to %d", i, k)
			x.sends[i] = append(x.sends[i], peer.Move{ID: id, Peer: stepvan.Rank(k), Label: label, View: columns(t, x.srcs[i], width*n, int64(k)*width, width)})
			x.recvs[k] = append(x.recvs[k], peer.Move{ID: id, Peer: stepvan.Rank(i), Label: label, View: columns(t, x.dsts[k], width*n, int64(i)*width, width)})
		}
	}
	return x
}

// check compares all destinations.
func (x *exchange) check(t testing.TB) {
	t.Helper()
	for k := range x.dsts {
		x.checkOne(t, k)
	}
}

// checkOne compares the destinations of a peer.
func (x *exchange) checkOne(t testing.TB, k int) {
	t.Helper()
	n, dst := int64(len(x.srcs)), x.dsts[k]
	want := make([]byte, dst.Len())
	for i, src := range x.srcs {
		for at := int64(0); at < int64(dst.Len()); at += n * x.width {
			copy(want[at+int64(i)*x.width:][:x.width], src.Bytes()[at+int64(k)*x.width:])
		}
	}
	require.Equal(t, want, dst.Bytes(), "at peer %d", k)
}

func TestPlan(t *testing.T) {
	eachVan(t, func(t *testing.T, v pairtest.Van) {
		for _, from := range []memory{heap, shared} {
			for _, to := range []memory{heap, shared} {
				t.Run(fmt.Sprint(from, to), func(t *testing.T) {
					all := pairtest.NewPeers(t, pairtest.Options{Van: v}, 3)
					for _, width := range []int64{1, 100, race.Fewer[int64](4096)} {
						x := newExchange(t, all, 512, width, from, to)
						plans := planEverywhere(t, all, fmt.Sprint("w", width), x.sends, x.recvs)
						for version := range uint64(3) {
							for i, src := range x.srcs {
								copy(src.Bytes(), filled(t, all[i], heap, int64(src.Len()), version*10+uint64(i)).Bytes())
							}
							runEverywhere(t, plans, version+1)
							x.check(t)
							for _, pl := range plans {
								require.Equal(t, version+1, pl.Version())
							}
						}
						s := plans[0].Stats()
						require.Equal(t, 512*width*2, s.Sent)
						require.Equal(t, 512*width*2, s.Received)
						require.Equal(t, 512*width, s.Local)
						require.Equal(t, s.Sent+s.Received, s.Viewed+s.Written+s.Streamed)
						if v.Shares && from == shared {
							require.Equal(t, s.Sent+s.Received, s.Viewed)
						}
						if v.Shares && from == heap && to == shared {
							require.Equal(t, s.Sent+s.Received, s.Written)
						}
					}
				})
			}
		}
	})
}

// pairOf is a plan from one peer to another.
func pairOf(t testing.TB, all []*pairtest.PeerOfCluster, from, to memory, n int64) (src, dst *tensor.Tensor, sends, recvs [][]peer.Move) {
	src, dst = filled(t, all[0], from, n, 5), empty(t, all[1], to, n)
	sends, recvs = make([][]peer.Move, len(all)), make([][]peer.Move, len(all))
	sends[0] = []peer.Move{{ID: 3, Peer: 1, View: src.Strided(), Label: "weight"}}
	recvs[1] = []peer.Move{{ID: 3, Peer: 0, View: dst.Strided(), Label: "weight"}}
	return src, dst, sends, recvs
}

func TestPlansThatDoNotFit(t *testing.T) {
	eachVan(t, func(t *testing.T, v pairtest.Van) {
		all := pairtest.NewPeers(t, pairtest.Options{Van: v}, 3)
		_, _, sends, recvs := pairOf(t, all, shared, shared, 64)
		third := filled(t, all[2], heap, 8, 1)
		sends[2] = []peer.Move{{ID: 9, Peer: 1, View: third.Strided()}}
		recvs[1] = append(recvs[1], peer.Move{ID: 9, Peer: 2, View: empty(t, all[1], heap, 8).Strided()})
		for _, c := range []struct {
			name string
			edit func(recvs []peer.Move) []peer.Move
			want string
		}{
			{"another size", func(m []peer.Move) []peer.Move { m[0].View = empty(t, all[1], heap, 63).Strided(); return m }, "uint8[63]"},
			{"another type", func(m []peer.Move) []peer.Move {
				x, err := tensor.FromSlice(make([]float32, 16))
				require.NoError(t, err)
				m[0].View = x.Strided()
				return m
			}, "float32[16]"},
			{"another ID", func(m []peer.Move) []peer.Move { m[0].ID = 4; return m }, "no move of this ID"},
			{"no move", func(m []peer.Move) []peer.Move { return append(m[1:], peer.Move{ID: 12, Peer: 0, View: m[0].View}) }, "move 3"},
		} {
			t.Run(c.name, func(t *testing.T) {
				other := [][]peer.Move{nil, c.edit(append([]peer.Move(nil), recvs[1]...)), nil}
				_, errs := tryPlan(t, all, "weights", sends, other)
				var m *peer.MismatchError
				require.ErrorAs(t, errs[0], &m)
				require.ErrorAs(t, errs[1], &m)
				require.ErrorContains(t, errs[0], c.want)
				require.ErrorContains(t, errs[1], "peer 0")
				require.ErrorIs(t, errs[2], stepvan.ErrRemote, "all learn it")
			})
		}
		plans, errs := tryPlan(t, all, "weights", sends, recvs) // the same name can be used again
		for i, err := range errs {
			require.NoError(t, err)
			defer func() { require.NoError(t, plans[i].Close(pairtest.Context(t))) }()
		}
		runEverywhere(t, plans, 1)
	})
}

func TestAPeerThatGivesUpAPlan(t *testing.T) {
	all := pairtest.NewPeers(t, pairtest.Options{}, 2)
	src, dst, sends, recvs := pairOf(t, all, heap, heap, 100_000)
	ctx, cancel := context.WithCancel(context.Background())
	require.NoError(t, all[0].Connect(pairtest.Context(t), 1))
	cancel()
	_, err := all[0].Plan(ctx, "weights", sends[0], recvs[0])
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "peer 1")
	gather(t, groupNamed(t, all, "again"), func(int) []byte { return nil }) // peer 1 has heard of it
	plans := planEverywhere(t, all, "weights", sends, recvs)
	runEverywhere(t, plans, 1)
	require.Equal(t, src.Bytes(), dst.Bytes())
}

func TestVersionsOfAPlan(t *testing.T) {
	eachVan(t, func(t *testing.T, v pairtest.Van) {
		all := pairtest.NewPeers(t, pairtest.Options{Van: v}, 2)
		src, dst, sends, recvs := pairOf(t, all, shared, heap, 1<<20)
		plans := planEverywhere(t, all, "weights", sends, recvs)
		_, err := plans[0].Begin(0)
		require.ErrorIs(t, err, stepvan.ErrInvalid)
		_, offered := plans[1].Offered()
		require.False(t, offered)
		send, err := plans[0].Begin(7)
		require.NoError(t, err)
		_, err = plans[0].Begin(8)
		require.ErrorIs(t, err, stepvan.ErrBusy)
		var version uint64
		for version == 0 {
			version, _ = plans[1].Offered()
			_ = send.WaitFor(0)
			if ctx := pairtest.Context(t); ctx.Err() != nil {
				t.Fatal("nothing is offered")
			}
		}
		require.Equal(t, uint64(7), version)
		recv, err := plans[1].Begin(0)
		require.NoError(t, err)
		require.NoError(t, recv.Wait(pairtest.Context(t)))
		require.NoError(t, send.Wait(pairtest.Context(t)))
		require.Equal(t, uint64(7), plans[1].Version())
		require.Equal(t, src.Bytes(), dst.Bytes())
		_, err = plans[0].Begin(6)
		require.ErrorIs(t, err, stepvan.ErrInvalid)
		require.ErrorContains(t, err, "got 6, want at least 7")

		send, err = plans[0].Begin(9)
		require.NoError(t, err)
		recv, err = plans[1].Begin(8)
		require.NoError(t, err)
		require.ErrorContains(t, recv.Wait(pairtest.Context(t)), "version 9")
		require.ErrorContains(t, send.Wait(pairtest.Context(t)), "version 9")
		require.Zero(t, plans[1].Version(), "no mixture is served")
		_, err = plans[0].Begin(10)
		require.ErrorIs(t, err, stepvan.ErrRemote)
	})
}

func TestADeathEndsAPlan(t *testing.T) {
	eachVan(t, func(t *testing.T, v pairtest.Van) {
		all := pairtest.NewPeers(t, pairtest.Options{Van: v}, 4)
		x := newExchange(t, all[:3], 64, 100, shared, shared)
		plans, errs := tryPlan(t, all[:3], "weights", x.sends, x.recvs)
		for _, err := range errs {
			require.NoError(t, err)
		}
		runEverywhere(t, plans, 1)
		var handles []peer.Handle
		for _, pl := range plans[:2] {
			h, err := pl.Begin(2)
			require.NoError(t, err)
			handles = append(handles, h)
		}
		require.NoError(t, all[2].Transport.Abort())
		for i, h := range handles {
			require.Error(t, h.Wait(pairtest.Context(t)))
			require.Zero(t, plans[i].Version())
			_, err := plans[i].Begin(3)
			require.Error(t, err)
			require.NoError(t, plans[i].Close(pairtest.Context(t)))
		}
		require.ErrorIs(t, plans[2].Close(pairtest.Context(t)), nil)
		y := newExchange(t, all[:2], 64, 100, shared, shared)
		again := planEverywhere(t, all[:2], "weights", y.sends, y.recvs)
		runEverywhere(t, again, 3)
		y.check(t)
	})
}

func TestARunDoesNotAllocate(t *testing.T) {
	all := pairtest.NewPeers(t, pairtest.Options{Van: pairtest.Shm()}, 2)
	x := newExchange(t, all, 64, 16, shared, shared)
	plans := planEverywhere(t, all, "weights", x.sends, x.recvs)
	version := uint64(0)
	run := func() {
		version++
		a, err := plans[0].Begin(version)
		require.NoError(t, err)
		b, err := plans[1].Begin(version)
		require.NoError(t, err)
		for !a.Done() || !b.Done() {
			_, _ = a.WaitFor(0), b.WaitFor(0)
		}
	}
	for range 100 {
		run()
	}
	require.Zero(t, testing.AllocsPerRun(100, run))
}

func TestDestinationsThatOverlap(t *testing.T) {
	p := pairtest.NewPeers(t, pairtest.Options{}, 1)[0]
	x := empty(t, p, heap, 1000)
	src := filled(t, p, heap, 500, 1)
	move := func(id uint64, v tensor.Strided) peer.Move {
		return peer.Move{ID: id, Peer: 0, View: v, Label: fmt.Sprint("w", id)}
	}
	send := columns(t, src, 5, 0, 5)
	_, err := p.Plan(pairtest.Context(t), "weights", []peer.Move{move(1, send), move(2, send)},
		[]peer.Move{move(1, columns(t, x, 10, 0, 5)), move(2, columns(t, x, 10, 4, 5))})
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	require.ErrorContains(t, err, "move 1 (w1) from peer 0 and move 2 (w2)")
	plans := planEverywhere(t, []*pairtest.PeerOfCluster{p}, "weights", [][]peer.Move{{move(1, send), move(2, send)}},
		[][]peer.Move{{move(1, columns(t, x, 10, 0, 5)), move(2, columns(t, x, 10, 5, 5))}})
	runEverywhere(t, plans, 1)
	for i := range 100 {
		require.Equal(t, src.Bytes()[i*5:][:5], x.Bytes()[i*10:][:5])
		require.Equal(t, src.Bytes()[i*5:][:5], x.Bytes()[i*10+5:][:5])
	}
}
