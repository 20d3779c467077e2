package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
)

// A mailbox that opens takes no more of the messages that wait than it has room for, and the rest later.
func TestAMailboxOpensWithinItsBound(t *testing.T) {
	const size, count = 64 << 10, 1000
	left, next := count, byte(0)
	m := newMailbox("listen", nil)
	m.listen = func(f func(func(), stepvan.Rank, []byte)) (func(), error) {
		stopped := false
		stop := func() { stopped = true }
		for ; left > 0 && !stopped; left-- {
			body := make([]byte, size)
			body[0], next = next, next+1
			f(stop, 0, body)
		}
		return stop, nil
	}
	require.NoError(t, m.open())
	for i := range count {
		require.LessOrEqual(t, m.bytes, maxMailboxBytes+size)
		var got byte
		again, err := m.take(func(x mail) error { got = x.body[0]; return nil })
		require.NoError(t, err)
		require.Equal(t, byte(i), got)
		if again {
			require.Empty(t, m.messages)
			require.NoError(t, m.open())
		}
	}
	require.Zero(t, left)
	require.Empty(t, m.messages)
}
