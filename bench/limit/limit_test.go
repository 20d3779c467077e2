package limit

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/bench/work"
)

var kinds = []Kind{Socket, UnixSocket, Netpoll, UnixNetpoll, Memory}

// connectAll makes a caller and its answerers. The sizes are larger than what a socket takes at once.
func connectAll(t *testing.T, s Spec, answerers int) (*Caller, []*Answerer) {
	t.Helper()
	var all []*Answerer
	var addrs []string
	for range answerers {
		a, addr, err := Listen(s)
		require.NoError(t, err)
		t.Cleanup(a.Close)
		all, addrs = append(all, a), append(addrs, addr)
	}
	c, err := Connect(t.Context(), s, addrs...)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c, all
}

func spec(k Kind) Spec { return Spec{Kind: k, Push: 3 << 20, Pull: 5 << 20, Parties: 2, Inside: true} }

func TestExchanges(t *testing.T) {
	const count, answerers = 5, 3
	for _, k := range kinds {
		t.Run(string(k), func(t *testing.T) {
			c, all := connectAll(t, spec(k), answerers)
			ended := make(chan error, answerers)
			for _, a := range all {
				go func() { ended <- a.Run(count) }()
			}
			n := 0
			require.NoError(t, c.Run(count, func(d time.Duration) {
				require.Positive(t, d)
				n++
			}))
			for range all {
				require.NoError(t, <-ended)
			}
			require.Equal(t, count, n)
		})
	}
}

func TestACallerHearsThatTheAnswererHasGone(t *testing.T) {
	for _, k := range kinds {
		t.Run(string(k), func(t *testing.T) {
			c, all := connectAll(t, spec(k), 1)
			ended := make(chan error, 1)
			go func() {
				err := all[0].Run(1)
				all[0].Close()
				ended <- err
			}()
			require.ErrorIs(t, c.Run(2, func(time.Duration) {}), net.ErrClosed)
			require.NoError(t, <-ended)
		})
	}
}

func TestAnAnswererHearsThatTheCallerHasGone(t *testing.T) {
	for _, k := range kinds {
		t.Run(string(k), func(t *testing.T) {
			c, all := connectAll(t, spec(k), 1)
			ended := make(chan error, 1)
			go func() { ended <- all[0].Run(2) }()
			require.NoError(t, c.Run(1, func(time.Duration) {}))
			c.Close()
			require.ErrorIs(t, <-ended, net.ErrClosed)
		})
	}
}

func TestTheBytesArrive(t *testing.T) {
	c, all := connectAll(t, spec(Socket), 1)
	here := c.to[0].(*rawSocket)
	for i := range here.out {
		here.out[i] = byte(i * 7)
	}
	ended := make(chan error, 1)
	go func() { ended <- all[0].Run(1) }()
	require.NoError(t, c.Run(1, func(time.Duration) {}))
	require.NoError(t, <-ended)
	require.Equal(t, here.out, all[0].side.(*rawSocket).in)

	c, all = connectAll(t, spec(Memory), 1)
	caller, answerer := c.to[0].(*memory), all[0].side.(*memory)
	go func() { ended <- all[0].Run(1) }()
	require.NoError(t, c.Run(1, func(time.Duration) {}))
	require.NoError(t, <-ended)
	file := answerer.file.Bytes()
	require.Equal(t, caller.from, file[bytesAt:][:len(caller.from)])
	require.Equal(t, answerer.from, caller.file.Bytes()[len(file)-len(answerer.from):])
}

func TestAFlagAlone(t *testing.T) {
	c, all := connectAll(t, Spec{Kind: Memory, Parties: 2, Inside: true}, 1)
	ended := make(chan error, 1)
	go func() { ended <- all[0].Run(100) }()
	require.NoError(t, c.Run(100, func(time.Duration) {}))
	require.NoError(t, <-ended)
}

func TestAnExchangeAllocatesNothing(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // as AllocsPerRun does
	for _, s := range []Spec{{Kind: Socket}, {Kind: Memory}, {Kind: Memory, Work: work.Spec{Fresh: true, Think: work.Constant(1)}}} {
		s.Push, s.Pull, s.Parties, s.Inside = 8, 8, 2, true
		c, all := connectAll(t, s, 1)
		const runs = 100
		ended := make(chan error, 1)
		go func() { ended <- all[0].Run(runs + 1) }()
		require.Zero(t, testing.AllocsPerRun(runs, func() {
			_, err := c.exchange()
			require.NoError(t, err)
		}))
		require.NoError(t, <-ended)
	}
}

func TestSidesWithWork(t *testing.T) {
	const count = 20
	for _, w := range []work.Spec{
		{Think: work.Even(time.Microsecond, 50*time.Microsecond)},
		{Fresh: true},
		{Think: work.Constant(20 * time.Microsecond), Fresh: true},
	} {
		for _, s := range []Spec{
			{Kind: Memory}, {Kind: Memory, InPlace: true}, {Kind: Socket}, {Kind: UnixSocket}, {Kind: Netpoll},
		} {
			s.Push, s.Pull, s.Parties, s.Inside, s.Work = 40<<10, 80<<10, 2, true, w
			t.Run(fmt.Sprint(s), func(t *testing.T) {
				c, all := connectAll(t, s, 1)
				ended := make(chan error, 1)
				go func() { ended <- all[0].Run(count) }()
				n := 0
				require.NoError(t, c.Run(count, func(d time.Duration) {
					require.Positive(t, d, "what comes above the computing")
					n++
				}))
				require.NoError(t, <-ended)
				require.Equal(t, count, n)
			})
		}
	}
}

// In place the bytes that one side writes are those that the other reads.
func TestInPlaceNothingIsCopied(t *testing.T) {
	c, all := connectAll(t, Spec{Kind: Memory, Push: 64, Pull: 64, InPlace: true, Parties: 2, Inside: true}, 1)
	out, in := c.to[0].buffers()
	otherOut, otherIn := all[0].side.buffers()
	out[0], otherOut[63] = 1, 2
	require.Equal(t, []byte{1, 2}, []byte{otherIn[0], in[63]})
}

func TestAnAnswererWithOldBytes(t *testing.T) {
	s := Spec{Kind: Memory, Push: 64, Pull: 64, Parties: 2, Inside: true, Work: work.Spec{Fresh: true}}
	c, all := connectAll(t, s, 1)
	all[0].spec.Work = work.Spec{}
	ended := make(chan error, 1)
	go func() { ended <- all[0].Run(1) }()
	require.ErrorContains(t, c.Run(1, func(time.Duration) {}), "the answer is not that to the push")
	require.NoError(t, <-ended)
}

func TestWorkNeedsOneAnswerer(t *testing.T) {
	_, err := Connect(t.Context(), Spec{Kind: Memory, Push: 8, Pull: 8, Work: work.Spec{Fresh: true}}, "x", "y")
	require.ErrorIs(t, err, stepvan.ErrInvalid)
}

func TestWrongSpecs(t *testing.T) {
	for _, s := range []Spec{{Kind: "pigeon", Push: 1, Pull: 1}, {Kind: Socket, Pull: 1}, {Kind: Netpoll, Push: 1}, {Kind: Memory, Push: -1}, {Kind: Memory, Push: 9, Pull: 8, Work: work.Spec{Fresh: true}}} {
		_, _, err := Listen(s)
		require.ErrorIs(t, err, stepvan.ErrInvalid)
		_, err = Connect(t.Context(), s, "x")
		require.ErrorIs(t, err, stepvan.ErrInvalid)
	}
}

func TestWrongAddresses(t *testing.T) {
	for _, addr := range []string{"", "/etc/passwd", "/proc/1/fd/../../../etc/passwd", "/proc/1/fd/-1", "/proc/1/fd/1/x"} {
		_, err := Connect(t.Context(), Spec{Kind: Memory}, addr)
		require.ErrorIs(t, err, stepvan.ErrInvalid, addr)
	}
	_, err := Connect(t.Context(), Spec{Kind: Memory}, "/proc/1/fd/4000000000")
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = Connect(t.Context(), Spec{Kind: Socket, Push: 1, Pull: 1}, "nowhere")
	require.Error(t, err)
}

// A file of other sizes than this side expects is not mapped.
func TestSidesThatDisagree(t *testing.T) {
	a, addr, err := Listen(Spec{Kind: Memory, Push: 8, Pull: 8})
	require.NoError(t, err)
	defer a.Close()
	_, err = Connect(t.Context(), Spec{Kind: Memory, Push: 1 << 20, Pull: 8}, addr)
	require.ErrorIs(t, err, stepvan.ErrInvalid)
}

func TestCopier(t *testing.T) {
	c := NewCopier(mostCopied + 3)
	require.Len(t, c.to, mostCopied)
	clear(c.to)
	c.from = append([]byte(nil), c.from...)
	c.from[0], c.from[mostCopied-1] = 7, 9
	require.Positive(t, c.Run(0))
	require.Equal(t, []byte{7, 9}, []byte{c.to[0], c.to[mostCopied-1]})
}

// An answerer with rows sends whole rows of its buffer, one after the other, and not always the same.
func TestPickedRows(t *testing.T) {
	for _, k := range kinds {
		for _, row := range []int64{300, picked/8 + 4} {
			s := Spec{Kind: k, Push: 8, Pull: 10 * row, Parties: 2, Inside: true, Rows: Rows{Bytes: row, Buffer: 16 * row}}
			c, all := connectAll(t, s, 1)
			done := make(chan error, 1)
			seen := map[int]bool{}
			buffer := written(s.Rows.Buffer)
			for range 5 {
				go func() { done <- all[0].Run(1) }()
				require.NoError(t, c.Run(1, func(time.Duration) {}))
				require.NoError(t, <-done)
				_, in := c.to[0].buffers()
				for at := int64(0); at < s.Pull; at += row {
					i := 0
					for ; i < 16 && !bytes.Equal(buffer[int64(i)*row:][:row], in[at:at+row]); i++ {
					}
					require.Less(t, i, 16, "row at %d of %s", at, k)
					seen[i] = true
				}
			}
			require.Greater(t, len(seen), 4, "%s", k)
		}
	}
	for _, r := range []Rows{{Bytes: 8}, {Bytes: -1, Buffer: 8}, {Bytes: 8, Buffer: 7}} {
		_, _, err := Listen(Spec{Kind: Memory, Parties: 2, Rows: r})
		require.ErrorIs(t, err, stepvan.ErrInvalid)
	}
}
