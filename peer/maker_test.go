package peer_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/peer"
	"github.com/stepvan/stepvan/tensor"
)

// counting makes byte i of value i modulo 251.
type counting struct {
	lies  []byte // where the bytes lie; nil: they are made
	freed atomic.Int32
}

func (m *counting) Make(to []byte, at int64) {
	for i := range to {
		to[i] = byte((at + int64(i)) % 251)
	}
}

func (m *counting) AppendSources(list [][]byte, at, n int64) [][]byte {
	if m.lies == nil {
		return list
	}
	return append(list, m.lies[at:at+n/2], m.lies[at+n/2:at+n])
}

func (m *counting) Free() { m.freed.Add(1) }

// What is made comes whole before its note, in one chunk or in many, and the maker is freed once.
func TestPutMade(t *testing.T) {
	eachVan(t, func(t *testing.T, v pairtest.Van) {
		for self := range 2 {
			for _, rows := range []int64{1, 300, 3000} {
				for _, lies := range []bool{false, true} {
					t.Run(fmt.Sprint(self, rows, lies), func(t *testing.T) { putMade(t, v, 1-self, rows, lies) })
				}
			}
		}
	})
}

func putMade(t *testing.T, v pairtest.Van, from int, rows int64, lies bool) {
	all := pairtest.NewPeers(t, pairtest.Options{Van: v}, 2)
	const width = 1001
	x := empty(t, all[0], shared, (rows+20)*width)
	m := &counting{}
	want := make([]byte, rows*width)
	m.Make(want, 0)
	if lies {
		m.lies = want
	}
	var mu sync.Mutex
	var notes []string
	w := expose(t, all[0], matrix(t, x, width), peer.WindowOptions{
		Rights: peer.RightWrite,
		Note: func(from stepvan.Rank, note []byte) {
			mu.Lock()
			defer mu.Unlock()
			notes = append(notes, fmt.Sprint(from, string(note), string(want) == string(x.Bytes()[10*width:][:rows*width])))
		},
	})
	for i := range 2 { // the second one finds the window known
		h, err := all[from].Library().PutMade(m, tensor.Uint8, []int64{rows, width}, w.Token(), []int64{10, 0}, []byte("tick"))
		finish(t, h, err)
		require.EqualValues(t, i+1, m.freed.Load())
		require.Eventually(t, func() bool {
			_ = all[0].Handle(0).WaitFor(0)
			mu.Lock()
			defer mu.Unlock()
			return len(notes) == i+1
		}, pairtest.WaitLimit, 1)
		require.Equal(t, fmt.Sprint(stepvan.Rank(from), "tick", true), notes[i])
		require.Equal(t, make([]byte, 10*width), x.Bytes()[:10*width], "what lies before it stays")
		require.Equal(t, make([]byte, 10*width), x.Bytes()[(10+rows)*width:], "and what lies behind")
		clear(x.Bytes())
	}
}

func TestPutMadeRefuses(t *testing.T) {
	eachVan(t, func(t *testing.T, v pairtest.Van) {
		all := pairtest.NewPeers(t, pairtest.Options{Van: v}, 2)
		x := empty(t, all[0], shared, 100*1000)
		w := expose(t, all[0], matrix(t, x, 1000), peer.WindowOptions{Rights: peer.RightWrite})
		for name, c := range map[string]struct {
			dtype tensor.DType
			dims  []int64
			at    []int64
			token peer.Token
			begun bool // the handle has the error
			want  error
		}{
			"a part of rows": {tensor.Uint8, []int64{2, 500}, nil, w.Token(), true, stepvan.ErrInvalid},
			"too many rows":  {tensor.Uint8, []int64{99, 1000}, []int64{2, 0}, w.Token(), true, stepvan.ErrInvalid},
			"another type":   {tensor.Float32, []int64{2, 1000}, nil, w.Token(), true, stepvan.ErrInvalid},
			"no type":        {0, []int64{2, 1000}, nil, w.Token(), false, stepvan.ErrInvalid},
			"no extents":     {tensor.Uint8, []int64{-1, 1000}, nil, w.Token(), false, stepvan.ErrInvalid},
			"another rank":   {tensor.Uint8, []int64{2, 1000}, []int64{1}, w.Token(), false, stepvan.ErrInvalid},
			"no token":       {tensor.Uint8, []int64{2, 1000}, nil, peer.Token{}, false, stepvan.ErrInvalid},
		} {
			for from := range 2 {
				t.Run(fmt.Sprint(name, from), func(t *testing.T) {
					m := &counting{}
					h, err := all[from].Library().PutMade(m, c.dtype, c.dims, c.token, c.at, nil)
					if !c.begun {
						require.ErrorIs(t, err, c.want)
						require.Zero(t, m.freed.Load(), "its owner frees it")
						return
					}
					require.NoError(t, err)
					require.ErrorIs(t, h.Wait(pairtest.Context(t)), c.want)
					require.Eventually(t, func() bool { return m.freed.Load() == 1 }, pairtest.WaitLimit, 1)
					require.Equal(t, make([]byte, 100*1000), x.Bytes())
				})
			}
		}
	})
}
