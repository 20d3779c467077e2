package vantest

import (
	"context"
	"sync"

	"github.com/stepvan/stepvan"
)

var clause06 = Clause{Number: 6, Name: "close_is_idempotent_and_unblocks", cases: []testCase{
	{name: "everything is refused afterwards", run: func(t *trial) {
		x, y := t.pair()
		a := x.n
		z, _ := t.connect(a, y.n)
		x.deliver(shape{size: 100})
		mayFail(z)
		mayFail(y.n.endpoints()...)
		x.close()
		t.wantErr(x.offer(shape{size: 1}), "Send after Endpoint.Close", stepvan.ErrClosed)
		addr := a.listen()
		a.close()
		t.wantErr(z.offer(shape{size: 1}), "Send after Van.Close", stepvan.ErrClosed)
		var err error
		t.call("Listen after Van.Close to return", func() { _, err = a.van.Listen(t.f.Listen) })
		t.wantErr(err, "Listen after Van.Close", stepvan.ErrClosed)
		t.call("Dial after Van.Close to return", func() { _, err = a.van.Dial(context.Background(), addr) })
		t.wantErr(err, "Dial after Van.Close", stepvan.ErrClosed)
		for range 3 {
			t.must(x.ep.Close(), "Endpoint.Close after Van.Close")
		}
		t.quiet()
	}},
	{name: "Dial returns", run: func(t *trial) {
		a := t.node(4)
		addr := t.unusedAddress()
		var started sync.WaitGroup
		for range 4 {
			started.Add(1)
			t.spawn(func() {
				started.Done()
				_, err := a.van.Dial(context.Background(), addr)
				t.wantErr(err, "Dial beside Van.Close", stepvan.ErrClosed)
			})
		}
		started.Wait()
		a.close()
		t.join()
	}},
	{name: "endpoints from many goroutines", run: func(t *trial) {
		closesUnderLoad(t, func(s *side) error { return s.ep.Close() })
	}},
	{name: "vans from many goroutines", run: func(t *trial) {
		closesUnderLoad(t, func(s *side) error { return s.n.van.Close() })
	}},
	{name: "a van that was never used", run: func(t *trial) { t.node(1).close() }},
}}

// closesUnderLoad has two goroutines send over a connection while several others close both sides of it.
func closesUnderLoad(t *trial, end func(*side) error) {
	x, y := t.pair()
	mayFail(x, y)
	var closing sync.WaitGroup
	begin := make(chan struct{})
	for _, s := range []*side{x, y} {
		pause(s.n)
		s.allow.closes = true
		t.spawn(func() {
			for i := 0; t.ctx.Err() == nil; i++ {
				if err := s.offerWaiting(shape{size: i % 5000, meta: i % 50}); err != nil {
					t.wantErr(err, "Send during Close", stepvan.ErrClosed, stepvan.ErrPeerLost)
					return
				}
			}
		})
		for range 4 {
			closing.Add(1)
			t.spawn(func() {
				defer closing.Done()
				select {
				case <-begin:
					t.must(end(s), "Close")
				case <-t.ctx.Done():
				}
			})
		}
	}
	for range 200 {
		x.n.poll(true)
		y.n.poll(true)
	}
	close(begin)
	closing.Wait()
	resume(x.n, y.n)
	t.join()
	t.until("completions of everything accepted before Close", func() bool { return x.idle() && y.idle() })
	t.quiet()
}
