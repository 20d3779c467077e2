//go:build cgo

package verbs

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
)

func TestMissingLibrary(t *testing.T) {
	for name, c := range map[string]struct{ ibverbs, rdmacm, want string }{
		"ibverbs":  {"libnothing.so.1", "libnothing.so.1", "load: libnothing.so.1: cannot open shared object file: No such file or directory: install rdma-core"},
		"function": {"libc.so.6", "libc.so.6", "load: libc.so.6: it has no ibv_get_device_list: install rdma-core 24 or later"},
	} {
		t.Run(name, func(t *testing.T) {
			err := tryLoad(c.ibverbs, c.rdmacm)
			require.ErrorContains(t, err, c.want)
			require.ErrorIs(t, err, stepvan.ErrNotSupported)
		})
	}
}

// Chains and completions are memory, so they need the libraries for nothing but Load.
func TestSizes(t *testing.T) {
	l := new(Library)
	for _, c := range []struct{ requests, segments int }{{0, 0}, {-1, 1}, {1, -1}, {maxChain + 1, 1}, {1, maxChain + 1}} {
		_, err := l.NewSendChain(c.requests, c.segments)
		require.ErrorIs(t, err, stepvan.ErrInvalid)
		_, err = l.NewReceiveChain(c.requests, c.segments)
		require.ErrorIs(t, err, stepvan.ErrInvalid)
	}
	_, err := l.NewCompletions(0)
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	require.Empty(t, l.Live())
}

func TestChainRefuses(t *testing.T) {
	l := new(Library)
	s, err := l.NewSendChain(2, 1)
	require.NoError(t, err)
	for _, op := range []Opcode{5, 6, opBind, 10, 1 << 31} {
		require.ErrorIs(t, s.Add(Request{Op: op}), stepvan.ErrInvalid)
	}
	require.ErrorIs(t, s.Add(Request{Op: OpSend}, Segment{}, Segment{}), ErrChainFull)
	require.Zero(t, s.Len())
	require.NoError(t, s.Add(Request{Op: OpSend}, Segment{}))
	require.ErrorIs(t, s.Add(Request{Op: OpSend}, Segment{}), ErrChainFull)
	require.NoError(t, s.Add(Request{Op: OpSend}))
	require.ErrorIs(t, s.Add(Request{Op: OpSend}), ErrChainFull)
	require.NoError(t, s.Close())
	require.ErrorIs(t, s.Add(Request{Op: OpSend}), ErrChainFull)
	s.Reset()

	r, err := l.NewReceiveChain(1, 1)
	require.NoError(t, err)
	require.ErrorIs(t, r.Add(1, Segment{}, Segment{}), ErrChainFull)
	require.NoError(t, r.Add(1, Segment{}))
	require.ErrorIs(t, r.Add(2), ErrChainFull)
	require.Equal(t, 1, r.Len())
	require.Zero(t, r.Room())
	require.NoError(t, r.Close())
	require.Empty(t, l.Live())
}
