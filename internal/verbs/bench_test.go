//go:build cgo

package verbs

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What a message costs on this side of the libraries: a device that does nothing, with the Go side, the call of C, and
// the shim.

func BenchmarkPost(b *testing.B) {
	if !fake(b) {
		return
	}
	n := benchNode(b)
	c := n.sends(2)
	for b.Loop() {
		c.Reset()
		_ = c.Add(Request{Op: OpWrite, Remote: 4096, Key: 1}, Segment{Addr: 4096, Length: 4096, Key: 1})
		_ = c.Add(Request{Op: OpSend, Flags: Inline}, Segment{Addr: 4096, Length: 32})
		_, _ = n.qp.PostSend(c)
	}
}

func BenchmarkPollNothing(b *testing.B) {
	if !fake(b) {
		return
	}
	n := benchNode(b)
	for b.Loop() {
		_, _ = n.cq.Poll(n.batch)
	}
}

func BenchmarkPostAndPoll(b *testing.B) {
	if !fake(b) {
		return
	}
	n := benchNode(b)
	c := n.sends(1)
	var last Completion
	for b.Loop() {
		c.Reset()
		_ = c.Add(Request{Op: OpSend, Flags: Signaled | Inline}, Segment{Addr: 4096, Length: 32})
		_, _ = n.qp.PostSend(c)
		_, _ = n.cq.Poll(n.batch)
		last = n.batch.At(0)
	}
	require.Equal(b, StatusSuccess, last.Status)
}

// benchNode closes its queue pair, which the fake device refuses once.
func benchNode(b *testing.B) *node {
	n := fakeNode(b)
	b.Cleanup(func() {
		_ = n.qp.Close()
		require.NoError(b, n.qp.Close())
	})
	return n
}
