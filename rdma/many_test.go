package rdma

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/van"
)

// Workers that connect to one server at once all get their connection. A pair pins at most 256 KiB at rest, both ends
// together, and no goroutine or thread belongs to it.
func TestManyPeersConnectAtOnce(t *testing.T) {
	m := rdma(t)
	const peers = 32
	server := newVan(t, Options{Source: m.addr[0]})
	addr, err := server.Listen(m.addr[1].String() + ":0")
	require.NoError(t, err)
	worker := newVan(t, Options{Source: m.addr[0]})
	accepted := 0
	events := make([]van.Event, 16)
	connect := func(n int) {
		failed := make(chan error, n)
		for range n {
			go func() {
				_, err := worker.Dial(t.Context(), addr)
				failed <- err
			}()
		}
		want := accepted + n
		for deadline := time.Now().Add(patience); (accepted < want || n > 0) && time.Now().Before(deadline); {
			for _, v := range []*rdmaVan{server, worker} {
				for _, ev := range events[:v.Poll(events, false)] {
					require.Equal(t, van.EventAccepted, ev.Kind)
					accepted++
				}
			}
			select {
			case err := <-failed:
				require.NoError(t, err)
				n--
			default:
			}
		}
		require.Equal(t, want, accepted)
		require.Zero(t, n)
	}
	connect(peers) // the threads that connecting takes for a moment stay in the process
	goroutines, threads, pinned := runtime.NumGoroutine(), status(t, "Threads"), status(t, "VmPin")
	began := time.Now()
	connect(peers)
	t.Logf("%d connections within %v", peers, time.Since(began))
	for deadline := time.Now().Add(patience); runtime.NumGoroutine() > goroutines && time.Now().Before(deadline); {
		runtime.Gosched()
	}
	require.LessOrEqual(t, runtime.NumGoroutine(), goroutines)
	require.Less(t, status(t, "Threads")-threads, peers/2)
	require.LessOrEqual(t, status(t, "VmPin")-pinned, peers*256, "KiB")
	for _, v := range []*rdmaVan{server, worker} {
		for _, r := range v.members.all(func(*rail) bool { return true }) {
			require.LessOrEqual(t, r.e.Counters().Pinned, uint64(128<<10))
		}
	}
}

// status is a number that the kernel tells of this process.
func status(t *testing.T, name string) (n int) {
	t.Helper()
	b, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	for line := range strings.Lines(string(b)) {
		if value, found := strings.CutPrefix(line, name+":"); found {
			_, err = fmt.Sscan(value, &n)
			require.NoError(t, err)
			return n
		}
	}
	t.Fatalf("the kernel says nothing of %s", name)
	return 0
}
