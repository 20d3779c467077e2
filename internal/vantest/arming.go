package vantest

import (
	"sync/atomic"
	"time"
)

// arming is what Van.Arm promises: a driver sleeps through nothing, and a driver that has nothing to do can sleep.
var arming = Clause{Number: 0, Name: "arm_and_wake", cases: []testCase{
	// The driver of b sleeps before each kind of event.
	{name: "whatever comes wakes", run: func(t *trial) {
		a, b := t.node(16), t.node(16)
		addr := b.listen()
		pause(b)
		b.arm()
		ep, err := a.van.Dial(t.ctx, addr)
		t.must(err, "dial")
		x := a.adopt(ep)
		var y *side
		b.wakesFor("a connection", func() bool { y = b.claim(); return y != nil })
		t.introduce(x, y)
		for i := range 3 * t.f.Credits {
			b.arm()
			x.send(shape{size: i % 2 * 100, meta: 10})
			b.wakesFor("a message", y.received)
		}

		var over atomic.Bool
		a.pump(over.Load)
		for _, size := range []int{10, 300 * kib} { // the small one may complete at once
			b.arm()
			y.send(shape{size: size})
			if !y.idle() {
				b.wakesFor("a completion", y.idle)
			}
		}
		over.Store(true)
		a.wake()
		t.until("the peer to stop polling", func() bool { return !a.paused.Load() })

		resume(b)
		x.exhaust(2) // messages wait for a credit
		pause(b)
		b.arm()
		y.releaseAll()
		b.wakesFor("a release", y.received)

		mayFail(x, y)
		b.arm()
		x.close()
		b.wakesFor("the loss of the peer", y.isLost)
	}},
	// Two goroutines sleep whenever their van lets them.
	{name: "both sides sleep between messages", run: func(t *trial) {
		const rounds = 300
		x, y := t.pair()
		pause(x.n, y.n)
		pingPong := func(s *side, i int) {
			s.n.sleepUntil("a message", func() bool { return s.count().delivered > i })
		}
		t.spawn(func() {
			for i := range rounds {
				pingPong(y, i)
				y.send(shape{size: i % 200, meta: 4})
			}
		})
		for i := range rounds {
			x.send(shape{size: i % 200, meta: 4})
			pingPong(x, i)
		}
		resume(x.n, y.n)
		t.join()
	}},
	// The receiver of a stream tries to sleep after every Poll, so that messages come while it arms.
	{name: "wakes while it goes to sleep", run: func(t *trial) {
		const messages = 2000
		x, y := t.pair()
		pause(y.n)
		t.spawn(func() {
			y.n.sleepUntil("a message", func() bool { return y.count().delivered == messages })
			resume(y.n)
		})
		for range messages {
			x.send(shape{size: t.rng.IntN(100), meta: 4})
		}
		t.join()
		x.drain()
	}},
	{name: "says yes when nothing is left", run: func(t *trial) {
		x, y := t.pair()
		for _, size := range []int{0, 10, 100 * kib} {
			x.exchange(shape{size: size, meta: 8}, shape{size: size})
			t.quiet()
			x.n.arm()
			y.n.arm()
			t.want(x.n.poll(true)+y.n.poll(true) == 0, "an armed van had something to poll, and nothing was sent")
		}
	}},
	// The receiver leaves things over by polling for one event only.
	{name: "says no while something is left", run: func(t *trial) {
		const messages = 5
		x, y := t.connect(t.node(16), t.node(1))
		b := y.n
		pause(b)
		b.arm()
		for range messages {
			x.send(shape{size: 20, meta: 8})
		}
		b.sleep("a message")
		for b.van.FD() < 0 && y.count().delivered < messages { // those with FD cannot know what the kernel gets meanwhile
			b.poll(true)
			if b.van.Arm() {
				t.want(b.poll(true) == 0, "Arm returned true, and there was something to poll")
				if b.van.Arm() {
					b.sleep("a message")
				}
			}
		}
		resume(b)
		x.drain()
	}},
	// The receiver arms without having looked, or having looked at a part: what is there already must be told too.
	{name: "tells what was there before", run: func(t *trial) {
		x, y := t.pair()
		b := y.n
		pause(b)
		for i := range 200 {
			x.send(shape{size: i % 3 * 50, meta: 8})
			if i%2 == 0 {
				b.poll(false)
			}
			for !y.received() {
				b.forgetWake()
				if b.van.Arm() {
					b.sleep("what had come before")
				}
				b.poll(true)
			}
		}
		resume(b)
		x.drain()
	}},
}}

// armLimit is how long a van may refuse to be armed. A goroutine of its own may be at work, and have no processor.
const armLimit = time.Second

// arm polls n until it is armed: from here on the next thing must wake it.
func (n *node) arm() {
	began := time.Now()
	for i := 0; i < mostPolls || !time.Now().Equal(began) && time.Since(began) < armLimit; i++ {
		n.t.relay()
		if n.poll(true) > 0 {
			continue
		}
		n.forgetWake()
		if n.van.Arm() {
			return
		}
	}
	n.t.fail(0, "Arm returned false for %v, though nothing was left to poll", time.Since(began))
}

// forgetWake forgets that the van has called wake.
func (n *node) forgetWake() {
	select {
	case <-n.wakeUp:
	default:
	}
}

// sleep returns when the van wakes it, as the van would wake a driver. It may not look at the van meanwhile.
func (n *node) sleep(what string) {
	if fd := n.van.FD(); fd >= 0 {
		for left := time.Until(n.t.deadline); left > 0; left = time.Until(n.t.deadline) {
			if readable(left, fd) {
				return
			}
		}
		n.t.fail(0, "%s did not make FD readable while the van was armed", what)
	}
	select {
	case <-n.wakeUp:
	case <-n.t.ctx.Done():
		n.t.fail(0, "%s did not wake an armed van", what)
	}
}

// wakesFor sleeps until the van, which is armed, wakes, and polls until done, never without having slept.
func (n *node) wakesFor(what string, done func() bool) {
	n.sleep(what)
	n.poll(true)
	n.sleepUntil(what, done)
}

// sleepUntil polls until done, and sleeps whenever the van lets it.
func (n *node) sleepUntil(what string, done func() bool) {
	for !done() {
		n.arm()
		if !done() {
			n.sleep(what)
			n.poll(true)
		}
	}
}
