package tcpvan

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/van"
)

// BenchmarkIncast has many endpoints of one van ask another van: all at the same time, one request
// each, or one after the other. An operation is one request with its answer: its cost must not
// grow with the number of endpoints. One thread moves both vans, so that nothing is waited for, and
// its processor time counts, which other work on the machine hardly changes.
func BenchmarkIncast(b *testing.B) {
	for _, k := range []struct{ name, addr string }{{"tcp", "127.0.0.1:0"}, {"unix", "unix:@stepvan-incast"}} {
		for _, n := range []int{1, 2, 8, 64, 256} {
			b.Run(fmt.Sprintf("%s/together/%d", k.name, n), func(b *testing.B) { incast(b, k.addr, n, false) })
			b.Run(fmt.Sprintf("%s/in-turn/%d", k.name, n), func(b *testing.B) { incast(b, k.addr, n, true) })
		}
	}
}

func incast(b *testing.B, addr string, n int, inTurn bool) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	asking, answering := newEchoVan(b), newEchoVan(b)
	defer asking.stop()
	defer answering.stop()
	bound, err := answering.v.Listen(addr)
	require.NoError(b, err)
	for range n {
		ep, err := asking.v.Dial(context.Background(), bound)
		require.NoError(b, err)
		asking.all = append(asking.all, ep)
		if !inTurn || len(asking.all) == 1 {
			require.NoError(b, ep.Send(asking.m))
		}
	}
	asking.inTurn = inTurn
	turns := func(n int) {
		for n > 0 {
			answering.reply()
			n -= asking.reply()
		}
	}
	turns(100 * n)
	b.ReportAllocs()
	b.ResetTimer()
	began := threadTime(b)
	turns(b.N)
	b.ReportMetric(float64(threadTime(b)-began)/float64(b.N), "cpu-ns/op")
}

// threadTime is the processor time of the calling thread in ns.
func threadTime(b *testing.B) int64 {
	var t unix.Timespec
	require.NoError(b, unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t))
	return t.Nano()
}

// echoVan is a van with many endpoints, each of which sends a message for each that it gets.
type echoVan struct {
	v      van.Van
	m      *van.Message
	events [64]van.Event
	pass   int // in a row without events
	all    []van.Endpoint
	inTurn bool // the endpoint after the one that got the message answers
	next   int
}

func newEchoVan(b *testing.B) *echoVan {
	v, err := New(Options{Placer: make(fixed, 8)})
	require.NoError(b, err)
	return &echoVan{v: v, m: message(1, 40, make([]byte, 8))}
}

// reply polls once, as an engine does, and answers what came.
func (c *echoVan) reply() (n int) {
	c.pass++
	for _, e := range c.events[:c.v.Poll(c.events[:], c.pass&7 == 0)] {
		c.pass = 0
		if e.Kind == van.EventMessage {
			e.Delivery.Release()
			if c.inTurn {
				c.next = (c.next + 1) % len(c.all)
				e.Endpoint = c.all[c.next]
			}
			_ = e.Endpoint.Send(c.m) // one at a time: there is room
			n++
		}
	}
	return n
}

func (c *echoVan) stop() { _ = c.v.Close() }
