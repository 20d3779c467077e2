//go:build cgo

package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/stepvan/stepvan/capi/internal/numbers"
)

// collective is what several peers do together: they agree on a plan, or meet in a group. It waits for the others on a
// goroutine of its own, so that C waits for it in slices.
type collective struct {
	node  *node
	op    string          // for errors
	ctx   context.Context // ends with it
	stop  context.CancelFunc
	over  chan struct{} // closed when err and parts are set
	err   error
	parts [][]byte // of an all-gather, by member
}

// newCollective makes a collective, which fails after a limit. A negative one means for ever. start or stop follows.
func newCollective(op string, limit time.Duration, n *node) *collective {
	c := &collective{node: n, op: op, over: make(chan struct{})}
	c.ctx, c.stop = limited(limit)
	return c
}

func (c *collective) start(f func(ctx context.Context, c *collective) error) {
	go func() {
		defer close(c.over)
		defer c.stop()
		c.err = c.node.shielded(c.op, func() error { return f(c.ctx, c) })
		if codeOf(c.err) == codeTimeout {
			c.err = &coded{codeExpired, c.err}
		}
	}()
}

// begin makes a collective and starts it.
func (n *node) begin(op string, limit time.Duration, f func(ctx context.Context, c *collective) error) *collective {
	c := newCollective(op, limit, n)
	c.start(f)
	return c
}

// waitFor waits for the end, and returns its error.
func (c *collective) waitFor(limit time.Duration) error {
	if err := await(c.over, limit); err != nil {
		if limit == 0 {
			return err
		}
		return &coded{codeTimeout, fmt.Errorf("%s: the wait timed out: wait again, the operation is not over", c.op)}
	}
	return c.err
}

// wait is waitFor with a context.
func (c *collective) wait(ctx context.Context) error {
	select {
	case <-c.over:
		return c.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// done reports whether it has ended.
func (c *collective) done() bool {
	select {
	case <-c.over:
		return true
	default:
		return false
	}
}

// recent are the numbers of the last collectives of some kind, the oldest first. Its user guards it.
type recent struct {
	ids  []numbers.ID
	most int
}

// add gives a collective a number. The oldest loses its own. It returns 0 when there are too many numbers.
func (r *recent) add(c *collective) numbers.ID {
	id := collectives.Put(c)
	if id == 0 {
		return 0
	}
	if r.ids = append(r.ids, id); len(r.ids) > r.most {
		collectives.Take(r.ids[0])
		r.ids = append(r.ids[:0], r.ids[1:]...)
	}
	return id
}

// end ends all numbers.
func (r *recent) end() {
	for _, id := range r.ids {
		collectives.Take(id)
	}
	r.ids = nil
}

// posts are the operations of a node on the board.
type posts struct {
	mu     sync.Mutex
	recent recent
}

func (p *posts) add(c *collective) numbers.ID {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.recent.most = keptPosts
	return p.recent.add(c)
}

func (p *posts) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.recent.end()
}

// collective returns the collective of this node that has a number, or nil. Handles of package peer have no kind, so
// they are never numbers of a table.
func (n *node) collective(number cUint64) *collective {
	if uint64(number)>>24&0xff == 0 {
		return nil
	}
	if c, ok := collectives.Get(numbers.ID(number)); ok && c.node == n {
		return c
	}
	if p, ok := plans.Get(numbers.ID(number)); ok && p.node == n {
		return p.agreement
	}
	return nil
}

// leaveCollectives ends what a node that is closed does with others. When it returns, nothing uses memory of the
// program.
func leaveCollectives(n *node) {
	for _, a := range agents.TakeIf(func(a *agent) bool { return a.node == n }) {
		_ = shielded("close an agent", func() error { return a.end(agentEndTime) })
	}
	for _, l := range loops.TakeIf(func(l *loop) bool { return l.node == n }) {
		_ = shielded("close a loop", func() error { return l.end(loopEndTime) })
		l.sweep() // a hook may continue after that
	}
	for _, p := range plans.TakeIf(func(p *plan) bool { return p.node == n }) {
		_ = shielded("close a plan", func() error { return p.end(context.Background()) })
	}
	for _, g := range groups.TakeIf(func(g *group) bool { return g.node == n }) {
		g.end()
	}
	for _, x := range exposures.TakeIf(func(x *exposed) bool { return x.node == n }) {
		_ = shielded("close a window", x.end)
	}
	for _, m := range mailboxes.TakeIf(func(m *mailbox) bool { return m.node == n }) {
		m.end()
	}
	for _, w := range watches.TakeIf(func(w *watch) bool { return w.node == n }) {
		w.stop()
	}
	n.posts.end()
}
