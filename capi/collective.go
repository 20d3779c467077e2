//go:build cgo

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/stepvan/stepvan/capi/internal/numbers"
)

// collective is what several peers do together: they agree on a plan, or meet in a group. It waits for the others on a
// goroutine of its own, so that C waits for it in slices.
type collective struct {
	node  *node
	op    string // for errors
	stop  context.CancelFunc
	over  chan struct{} // closed when err and parts are set
	err   error
	parts [][]byte // of an all-gather, by member
}

// begin begins a collective, which fails after a limit. A negative one means for ever.
func (n *node) begin(op string, limit time.Duration, f func(ctx context.Context, c *collective) error) *collective {
	ctx, stop := limited(limit)
	c := &collective{node: n, op: op, stop: stop, over: make(chan struct{})}
	go func() {
		defer close(c.over)
		defer stop()
		c.err = n.shielded(op, func() error { return f(ctx, c) })
		if codeOf(c.err) == codeTimeout {
			c.err = &coded{codeExpired, c.err}
		}
	}()
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

// collective returns the collective of this node that has a number, or nil. Handles of package peer have no kind, so
// they are never numbers of a table.
func (n *node) collective(number cUint64) *collective {
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
func (n *node) leaveCollectives() {
	for _, p := range plans.TakeIf(func(p *plan) bool { return p.node == n }) {
		_ = shielded("close a plan", func() error { return p.end(context.Background()) })
	}
	for _, g := range groups.TakeIf(func(g *group) bool { return g.node == n }) {
		g.end()
	}
}
