package memvan

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

// posts sends payload to a grant of y.
func posts(t *testing.T, x, y van.Endpoint, mem, payload []byte) van.Grant {
	t.Helper()
	g, err := y.(van.Granter).Grant(mem, 1, van.RightWrite)
	require.NoError(t, err)
	head := make([]byte, wire.HeaderSize)
	n := uint64(len(payload))
	(&wire.Header{Kind: wire.KindData, Payload: n, Total: n}).Encode(head, nil)
	m := &van.Message{Op: 7, Head: head, Payload: [][]byte{payload}, Target: []van.Target{{Grant: g.ID, Generation: 1}}}
	require.NoError(t, x.Send(m))
	require.False(t, m.Done)
	return g
}

func metWithDevice(t *testing.T) (a, b van.Van, x, y van.Endpoint) {
	return metOver(t, NewNetwork(), Options{OneSided: true, NoViews: true, Offload: true, Credits: 1})
}

// Send posts, and the device writes. A withdrawal waits for what was posted, and not for credit.
func TestSendOnlyPostsToTheDevice(t *testing.T) {
	_, b, x, y := metWithDevice(t)
	mem := make([]byte, 3)
	posts(t, x, y, make([]byte, 3), []byte("one"))
	g := posts(t, x, y, mem, []byte("abc"))
	require.NoError(t, y.(van.Granter).Withdraw(g.ID, 9))
	require.Equal(t, make([]byte, 3), mem)
	kinds, _ := poll(b)
	require.Equal(t, "abc", string(mem))
	require.ElementsMatch(t, []van.EventKind{van.EventMessage, van.EventCompletion}, kinds, "the second message has no credit")
}

// The end of the connection completes what the device has not moved, with an error. None of it is written later.
func TestTheEndDropsWhatWasPosted(t *testing.T) {
	for _, owner := range []bool{false, true} {
		a, b, x, y := metWithDevice(t)
		mem := make([]byte, 3)
		posts(t, x, y, mem, []byte("abc"))
		closer, other, rest := x, b, []van.EventKind{van.EventLost, van.EventDetached}
		if owner {
			closer, other = y, a
			rest = append([]van.EventKind{van.EventCompletion}, rest...)
		}
		require.NoError(t, closer.Close())
		kinds, _ := poll(other)
		require.Equal(t, rest, kinds)
		poll(a)
		poll(b)
		require.Equal(t, make([]byte, 3), mem)
	}
}
