//go:build cgo

package verbs

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
)

// Two machines exchange messages. Then the first one is ended without a word, and the second hears nothing any more.
// scripts/test-rdma.sh runs this test in two machines. By files in VERBS_TEST_HOSTS they say how far they are.
func TestTwoMachines(t *testing.T) {
	folder := os.Getenv("VERBS_TEST_HOSTS")
	if folder == "" {
		t.Log("this is not one of two machines")
		return
	}
	say := func(what string) { require.NoError(t, os.WriteFile(filepath.Join(folder, what), nil, 0o644)) }
	const port = 7471
	here, there := netip.MustParseAddr(os.Getenv("RDMAVM_IP0")), netip.MustParseAddr(os.Getenv("RDMAVM_IP1"))
	n := newNode(t, library(t), os.Getenv("RDMAVM_DEV0"))
	if os.Getenv("RDMAVM_HOST") == "1" {
		listenAt(n, netip.AddrPortFrom(here, port))
		say("listening")
		n.echo()
	}

	dial(n, netip.AddrPortFrom(here, 0), netip.AddrPortFrom(there, port))
	require.NoError(t, n.id.Connect(terms))
	n.event(Established)
	for i := range 100 {
		n.receive(0, n.segment(4096, 64))
		n.memory[0] = byte(i)
		n.post(Request{Op: OpSend, Flags: Signaled}, n.segment(0, 1))
		for range 2 {
			c := n.completion()
			require.NoError(t, c.Err("exchange", n.device.Name()))
		}
		require.Equal(t, byte(i), n.memory[4096])
	}
	say("exchanged")
	for answered := time.Now(); ; answered = time.Now() {
		n.post(Request{Op: OpWrite, Flags: Signaled})
		if c := n.completion(); c.Status != StatusSuccess {
			require.Equal(t, StatusRetryExceeded, c.Status)
			require.ErrorIs(t, c.Err("write", n.device.Name()), stepvan.ErrPeerLost)
			t.Logf("noticed %v after the last answer", time.Since(answered).Round(time.Millisecond))
			return
		}
	}
}

// echo accepts a connection, and sends back what it receives, until the machine ends.
func (n *node) echo() {
	n.t.Helper()
	e := n.event(ConnectRequest)
	n.attach(e.ID)
	n.receive(0, n.segment(0, 64))
	require.NoError(n.t, e.ID.Accept(terms))
	n.event(Established)
	for {
		if c := n.completion(); c.Op == DoneReceive {
			require.NoError(n.t, c.Err("receive", n.device.Name()))
			n.receive(0, n.segment(0, 64))
			n.post(Request{Op: OpSend, Flags: Signaled}, n.segment(0, 1))
		}
	}
}
