package rdma

import (
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/internal/verbs"
	"github.com/stepvan/stepvan/van"
)

const (
	epollIn = unix.EPOLLIN
	// batch is how many completions one call takes, and batches how many calls one Poll makes for each queue.
	batch   = 32
	batches = 8
)

// poller is the state of Poll and Arm, which have one caller at a time. The undertaker borrows it while nobody polls.
type poller struct {
	v        *rdmaVan
	queue    []*endpoint // to look at
	spare    []*endpoint // the memory of the queue before
	moved    bool
	done     *verbs.Completions
	receives *verbs.ReceiveChain
	last     [4]*rail // of completions before, by number
}

func (p *poller) open(l *verbs.Library) (err error) {
	if p.done, err = l.NewCompletions(batch); err != nil {
		return err
	}
	p.receives, err = l.NewReceiveChain(chainLen, chainLen)
	return err
}

func (p *poller) close() {
	if p.done != nil {
		_ = p.done.Close()
	}
	if p.receives != nil {
		_ = p.receives.Close()
	}
	clear(p.last[:])
}

// lock waits for the caller of Poll.
func (p *poller) lock() {
	for !p.v.polling.CompareAndSwap(false, true) {
		runtime.Gosched()
	}
}

// Poll implements van.Van. It costs one call of the library for each completion queue. Budget: no allocation, and no
// system call unless the van was armed.
func (v *rdmaVan) Poll(events []van.Event, _ bool) int {
	if len(events) == 0 || !v.polling.CompareAndSwap(false, true) {
		return 0
	}
	if v.armed.Load() {
		v.armed.Store(false)
	}
	out := sink{events[:0:len(events)]}
	p := &v.poller
	p.moved = p.pollQueues()
	p.takeNotes()
	p.run(&out)
	p.moved = p.moved || len(out.events) > 0
	v.polling.Store(false)
	return len(out.events)
}

// Moved implements van.Mover.
func (v *rdmaVan) Moved() bool { return v.poller.moved }

// takeCompletions takes completions and reports nothing, unless somebody polls. Any goroutine that holds no lock.
func (p *poller) takeCompletions() {
	if p.v.polling.CompareAndSwap(false, true) {
		p.pollQueues()
		p.v.polling.Store(false)
	}
}

// pollQueues takes completions, and reports whether there were any.
func (p *poller) pollQueues() (found bool) {
	for _, q := range *p.v.members.queues.Load() {
		for range batches {
			n, err := q.cq.Poll(p.done)
			if err != nil {
				p.failQueue(q, err)
				break
			}
			for i := range n {
				c := p.done.At(i)
				p.dispatch(&c)
			}
			found = found || n > 0
			if n < batch {
				break
			}
		}
	}
	return found
}

// failQueue ends the connections of a completion queue that the library cannot read. No other begins there.
func (p *poller) failQueue(q *completionQueue, err error) {
	q.failed.Store(true)
	for _, r := range p.v.members.all(func(r *rail) bool { return r.conn.queue == q }) {
		r.fail("receive", lossOf(err))
	}
}

// dispatch hands a completion to its endpoint, if that has not ended.
func (p *poller) dispatch(c *verbs.Completion) {
	number, receive, n := splitID(c.ID)
	last := &p.last[number%uint32(len(p.last))]
	r := *last
	if r == nil || r.number != number {
		if r = p.v.members.find(number); r == nil {
			return
		}
		*last = r
	}
	r.conn.completions.Store(r.conn.completions.Load() + 1)
	if r.e.state.Load()&dead != 0 || r.loss.shut.Load() {
		return
	}
	if receive {
		r.onReceived(c, int(n))
	} else {
		r.onSent(c, n)
	}
	p.enqueue(r.e)
}

// takeNotes puts the endpoints that were noted into the queue.
func (p *poller) takeNotes() {
	if p.v.noted.Load() == nil {
		return
	}
	for e := p.v.noted.Swap(nil); e != nil; {
		next := e.nextNoted
		e.nextNoted = nil
		e.noted.Store(false)
		p.enqueue(e)
		e = next
	}
}

// enqueue has the endpoint looked at by this Poll or, once the queue has run, by the next.
func (p *poller) enqueue(e *endpoint) {
	if !e.queued {
		e.queued = true
		p.queue = append(p.queue, e)
	}
}

// run looks at every endpoint of the queue once; those with more to do stay in it. When there is no room for events the
// rest waits, and comes first in the next call.
func (p *poller) run(out *sink) {
	if len(p.queue) == 0 {
		return
	}
	list := p.queue
	p.queue = p.spare[:0]
	for i, e := range list {
		if out.full() {
			again := p.queue
			p.queue = append(list[:copy(list, list[i:])], again...)
			clear(list[len(p.queue):])
			list = again
			break
		}
		e.queued = false
		if e.step(out) {
			p.enqueue(e)
		}
	}
	clear(list)
	p.spare = list
}

// Arm implements van.Van.
func (v *rdmaVan) Arm() bool {
	if !v.polling.CompareAndSwap(false, true) {
		return false
	}
	defer v.polling.Store(false)
	if v.ctx.Err() != nil {
		return true
	}
	for _, e := range v.poller.queue {
		if !e.maySleep() {
			return false
		}
	}
	v.poller.readChannels()
	v.armed.Store(true)
	if !v.poller.armQueues() || v.poller.pollQueues() || v.noted.Load() != nil {
		v.armed.Store(false)
		return false
	}
	return true
}

// armQueues has the next completion of each queue wake the driver.
func (p *poller) armQueues() bool {
	for _, q := range *p.v.members.queues.Load() {
		if !q.armed {
			if err := q.cq.Arm(false); err != nil {
				p.failQueue(q, err)
				return false
			}
			q.armed = true
		}
	}
	return true
}

// readChannels takes the events of the queues that have woken the driver, or would. Budget: one system call for each
// armed queue, and one more after wake.
func (p *poller) readChannels() {
	p.v.takeWake()
	for _, d := range p.v.devices {
		p.readChannel(d)
	}
}

// readChannel takes the events of one device. An armed queue has one at most. What is left shows at FD.
func (p *poller) readChannel(d *device) {
	queues := *p.v.members.queues.Load()
	armed := 0
	for _, q := range queues {
		if q.armed && q.device == d {
			armed++
		}
	}
	for range armed {
		cq, err := d.wake.Next()
		if err != nil || cq == nil {
			return
		}
		for _, q := range queues {
			if q.cq == cq {
				q.armed = false
			}
		}
	}
}

// wake makes FD readable if the driver may sleep on it. Concurrent.
func (v *rdmaVan) wake() {
	if v.armed.Load() && v.armed.CompareAndSwap(true, false) {
		v.epollMu.Lock()
		defer v.epollMu.Unlock()
		v.woken = true
		v.epoll.Wake()
	}
}

// takeWake ends what wake has begun.
func (v *rdmaVan) takeWake() {
	v.epollMu.Lock()
	defer v.epollMu.Unlock()
	if !v.woken {
		return
	}
	var events [8]unix.EpollEvent
	for _, e := range events[:v.epoll.Wait(events[:])] {
		v.woken = v.woken && e.Fd >= 0
	}
}
