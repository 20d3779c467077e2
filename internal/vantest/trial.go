package vantest

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/stepvan/stepvan/van"
)

// trial is one run of one case: its vans, their connections, and random numbers that are the same in each run.
type trial struct {
	driver
	f     Factory
	rng   *rand.Rand // of the case's goroutine
	salts uint64
	atEnd []func()
}

func newTrial(f Factory, clause int, name string) *trial {
	t := &trial{f: f, rng: rand.New(rand.NewPCG(uint64(clause), 3))}
	t.clause, t.name = clause, name
	t.deadline = time.Now().Add(f.Deadline)
	t.ctx, t.cancel = context.WithDeadline(context.Background(), t.deadline)
	t.wakeUp = make(chan struct{}, 1)
	t.alarm.open()
	return t
}

// node makes a van that polls batches of up to batch events.
func (t *trial) node(batch int) *node {
	n := &node{
		t: t, events: make([]van.Event, batch), wakeUp: make(chan struct{}, 1),
		sides: map[van.Endpoint]*side{},
	}
	var err error
	n.van, err = t.f.New(n, n.wake)
	t.must(err, "make a van")
	t.nodes = append(t.nodes, n)
	return n
}

// pair makes two vans and a connection between them. x has dialed.
func (t *trial) pair() (x, y *side) { return t.connect(t.node(16), t.node(16)) }

// connect makes a connection between two vans.
func (t *trial) connect(from, to *node) (x, y *side) { return t.dial(from, to, to.listen()) }

func (t *trial) dial(from, to *node, addr string) (x, y *side) {
	ep, err := from.van.Dial(t.ctx, addr)
	t.must(err, "dial "+addr)
	x = from.adopt(ep)
	y = to.accept("a dialed connection")
	t.introduce(x, y)
	return x, y
}

// introduce makes x and y known as the two sides of one connection.
func (t *trial) introduce(x, y *side) {
	t.salts++
	x.peer, y.peer = y, x
	x.out.salt, y.in.salt = 2*t.salts, 2*t.salts
	y.out.salt, x.in.salt = 2*t.salts+1, 2*t.salts+1
}

// unusedAddress returns an address at which nobody listens.
func (t *trial) unusedAddress() string {
	v, err := t.f.New(noPlacer{}, func() {})
	t.must(err, "make a van")
	addr, err := v.Listen(t.f.Listen)
	t.must(err, "listen")
	t.must(v.Close(), "close the van that listened")
	return addr
}

// finish ends a case that found nothing. It closes every van, which must hand out the
// completions that are due, and nothing else.
func (t *trial) finish() {
	t.join()
	for _, n := range t.nodes {
		n.close()
	}
	t.clause = 1
	t.until("the completions of all accepted operations after Close", func() bool {
		return all(t.nodes, func(n *node) bool { return all(n.endpoints(), (*side).idle) })
	})
	t.quiet()
	for _, n := range t.nodes {
		for _, s := range n.endpoints() {
			s.releaseAll()
		}
	}
	t.quiet()
	t.relay()
}

// cleanUp frees everything, whatever became of the case.
func (t *trial) cleanUp() {
	defer t.alarm.close()
	t.cancel()
	for _, n := range t.nodes {
		_ = n.van.Close()
	}
	for _, fn := range t.atEnd {
		fn()
	}
	t.spawned.Wait()
}
