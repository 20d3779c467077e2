package shmvan

import (
	"bytes"
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/van"
)

func mappings(t *testing.T) int {
	b, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	return bytes.Count(b, []byte("stepvan:")) + bytes.Count(b, []byte("memfd:"))
}

// Connections leave nothing behind: no descriptor, no mapping, no goroutine.
func TestConnectionsLeaveNothing(t *testing.T) {
	const cycles = 1000
	a, b := newParty(t, Options{Files: memory(), RingBytes: minRing}), newParty(t, Options{Files: memory(), RingBytes: minRing})
	addr := b.listen()
	mem := shared(t, 64<<10)
	cycle := func(i int) {
		x := a.dial(addr)
		y := bare(b.until(van.EventAccepted).Endpoint)
		g, err := granter{x}.Grant(mem, 1, everything)
		require.NoError(t, err)
		view, err := granter{y}.Map(van.Target{Grant: g.ID, Generation: 1}, 100, van.RightRead)
		require.NoError(t, err)
		require.NoError(t, x.Send(message(1, mem)))
		b.until(van.EventMessage).Delivery.Release()
		if i%2 == 0 {
			view.Release()
		}
		require.NoError(t, x.Close())
		b.until(van.EventLost)
		if i%2 == 1 {
			view.Release()
		}
		a.eventually("the memory to go", func() bool {
			a.v.Poll(make([]van.Event, 1), true)
			b.v.Poll(make([]van.Event, 1), true)
			return !x.conn.stillMapped() && !y.conn.stillMapped() && len(*a.v.eps.Load())+len(*b.v.eps.Load()) == 0
		})
	}
	cycle(0)
	fds, maps, routines := count(t, "/proc/self/fd"), mappings(t), runtime.NumGoroutine()
	for i := range cycles {
		cycle(i)
	}
	require.LessOrEqual(t, count(t, "/proc/self/fd"), fds)
	require.LessOrEqual(t, mappings(t), maps)
	a.eventually("the goroutines to end", func() bool { return runtime.NumGoroutine() <= routines })
	require.Empty(t, a.v.kernel.endpoints)
	require.Empty(t, b.v.kernel.endpoints)
}
