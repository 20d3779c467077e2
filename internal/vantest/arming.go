package vantest

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// arming is what Van.Arm promises: a driver sleeps through nothing, and a driver that has nothing to do can sleep.
var arming = Clause{Number: 0, Name: "arm_and_wake", cases: []testCase{
	{name: "whatever comes wakes", run: everythingWakes},
	{name: "both sides sleep between messages", run: sleepersPingPong},
	{name: "wakes while it goes to sleep", run: wakesAtTheLastMoment},
	{name: "says yes when nothing is left", run: armsWhenQuiet},
	{name: "says no while something is left", run: staysAwake},
	{name: "tells what was there before", run: armsLate},
}}

// lull polls n until it is armed: from here on the next thing must wake it.
func (n *node) lull() {
	for range mostTurns {
		n.p.relay()
		if n.poll(true) > 0 {
			continue
		}
		n.hush()
		if n.van.Arm() {
			return
		}
	}
	n.p.fail(0, "Arm returned false %d times, though nothing was left to poll", mostTurns)
}

// hush forgets what the van has called so far.
func (n *node) hush() {
	select {
	case <-n.bell:
	default:
	}
}

// sleep returns when the van wakes it, as the van would wake a driver. It may not look at the van meanwhile.
func (n *node) sleep(what string) {
	fd := n.van.FD()
	if fd < 0 {
		select {
		case <-n.bell:
		case <-n.p.ctx.Done():
			n.p.fail(0, "%s did not wake an armed van", what)
		}
		return
	}
	for left := time.Until(n.p.deadline); left > 0; left = time.Until(n.p.deadline) {
		if k, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left/time.Millisecond)+1); k > 0 {
			return
		}
	}
	n.p.fail(0, "%s did not make FD readable while the van was armed", what)
}

// rise sleeps until the van, which is armed, wakes, and polls until done, never without
// having slept.
func (n *node) rise(what string, done func() bool) {
	n.sleep(what)
	n.poll(true)
	n.watch(what, done)
}

// watch polls until done, and sleeps whenever the van lets it.
func (n *node) watch(what string, done func() bool) {
	for !done() {
		n.lull()
		if !done() {
			n.sleep(what)
			n.poll(true)
		}
	}
}

func everythingWakes(p *probe) {
	a, b := p.pair()
	addr := b.listen()
	b.detached.Store(true)
	b.lull()
	ep, err := a.van.Dial(p.ctx, addr)
	p.must(err, "dial")
	x := a.adopt(ep)
	x.out, x.in = 1000, 1001
	var y *side
	b.rise("a connection", func() bool { y = b.claim(); return y != nil })
	y.out, y.in = x.in, x.out
	for i := range 3 * p.f.Credits {
		b.lull()
		x.send(shape{size: i % 2 * 100, meta: 10})
		b.rise("a message", func() bool { return y.count().delivered == x.count().sent })
	}
	completionWakes(p, x, y)
	releaseWakes(p, x, y)
	x.endangered()
	y.endangered()
	b.lull()
	x.close()
	b.rise("the loss of the peer", func() bool { return y.count().lost })
}

// completionWakes has y sleep until its peer has taken a message.
func completionWakes(p *probe, x, y *side) {
	var over atomic.Bool
	x.n.pump(over.Load)
	for _, size := range []int{10, 300 * kib} { // the small one may complete at once
		y.n.lull()
		y.send(shape{size: size})
		if !y.idle() {
			y.n.rise("a completion", y.idle)
		}
	}
	over.Store(true)
	x.n.wake()
	p.until("the peer to stop polling", func() bool { return !x.n.detached.Load() })
}

// releaseWakes has y sleep while messages wait for a credit.
func releaseWakes(p *probe, x, y *side) {
	y.n.detached.Store(false)
	exhaust(p, x, y, 2)
	y.n.detached.Store(true)
	y.n.lull()
	y.hold = false
	y.release(p.f.Credits)
	y.n.rise("a release", func() bool { return y.count().delivered == x.count().sent })
}

// sleepersPingPong has two goroutines which sleep whenever their van lets them.
func sleepersPingPong(p *probe) {
	const rounds = 300
	a, b := p.pair()
	x, y := p.connect(a, b)
	a.detached.Store(true)
	b.detached.Store(true)
	p.spawn(func() {
		for i := range rounds {
			b.watch("a message", func() bool { return y.count().delivered > i })
			y.send(shape{size: i % 200, meta: 4})
		}
	})
	for i := range rounds {
		x.send(shape{size: i % 200, meta: 4})
		a.watch("an answer", func() bool { return x.count().delivered > i })
	}
	a.detached.Store(false)
	b.detached.Store(false)
	p.join()
}

// wakesAtTheLastMoment streams to a receiver that tries to sleep after every Poll, so that messages
// come while it arms.
func wakesAtTheLastMoment(p *probe) {
	const messages = 2000
	a, b := p.pair()
	x, y := p.connect(a, b)
	b.detached.Store(true)
	p.spawn(func() {
		b.watch("a message", func() bool { return y.count().delivered == messages })
		b.detached.Store(false)
	})
	for range messages {
		x.send(shape{size: p.rng.IntN(100), meta: 4})
	}
	p.join()
	x.arrive(y)
}

// armsLate arms without having looked, or having looked at a part: what is there already must be told too.
func armsLate(p *probe) {
	a, b := p.pair()
	x, y := p.connect(a, b)
	b.detached.Store(true)
	for i := range 200 {
		x.send(shape{size: i % 3 * 50, meta: 8})
		if i%2 == 0 {
			b.poll(false)
		}
		for y.count().delivered < x.count().sent {
			b.hush()
			if b.van.Arm() {
				b.sleep("what had come before")
			}
			b.poll(true)
		}
	}
	b.detached.Store(false)
	x.arrive(y)
}

func armsWhenQuiet(p *probe) {
	a, b := p.pair()
	x, y := p.connect(a, b)
	for _, size := range []int{0, 10, 100 * kib} {
		duplex(x, y, []shape{{size: size, meta: 8}, {size: size}})
		p.quiet()
		a.lull()
		b.lull()
		p.want(a.poll(true)+b.poll(true) == 0, "an armed van had something to poll, and nothing was sent")
	}
}

// staysAwake leaves things over by polling for one event only.
func staysAwake(p *probe) {
	const messages = 5
	a, b := p.node(16), p.node(1)
	x, y := p.connect(a, b)
	b.detached.Store(true)
	b.lull()
	for range messages {
		x.send(shape{size: 20, meta: 8})
	}
	b.sleep("a message")
	for b.van.FD() < 0 && y.count().delivered < messages { // those with FD cannot know what the kernel gets meanwhile
		b.poll(true)
		if b.van.Arm() {
			p.want(b.poll(true) == 0, "Arm returned true, and there was something to poll")
			if b.van.Arm() {
				b.sleep("a message")
			}
		}
	}
	b.detached.Store(false)
	x.arrive(y)
}
