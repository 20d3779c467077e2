package bench

import (
	"fmt"
	"slices"
	"time"

	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/internal/errs"
)

// conductor tells the nodes of one measurement what to do, and keeps what they say.
type conductor struct {
	opts    Options
	workers []*line // by rank
	servers []*line

	stack, bare      latencies // of all rounds
	ratios, limits   []float64 // per round: quotient of the medians; median of the limit in us
	exchanges        int64     // of all workers
	elapsed          time.Duration
	allocs           uint64
	cpu              time.Duration
	perStack, perRaw int // exchanges per worker and round
}

// Exchanges of the first rounds, which find out how long one takes.
const (
	checks     = 3 // of each slot
	firstCount = 16
	nextTime   = 100 * time.Millisecond
	mostCount  = 1 << 24 // per round
)

// conduct does all the rounds and has the nodes finish.
func (c *conductor) conduct() (*Report, error) {
	c.stack, c.bare = newLatencies(), newLatencies()
	err := c.begin()
	if err == nil {
		err = c.calibrate()
	}
	for i := 0; i < c.opts.Rounds && err == nil; i++ {
		err = c.round()
	}
	if err != nil {
		return nil, err
	}
	if _, err := c.tell(command{Verb: verbFinish}, slices.Concat(c.servers, c.workers)); err != nil {
		return nil, err
	}
	return c.report(), nil
}

// introduce takes the hello of a node and gives it its place.
func (c *conductor) introduce(l *line) error {
	var h hello
	if err := l.receive(&h); err != nil {
		return fmt.Errorf("a node said no hello: %w", err)
	}
	places := map[config.Role][]*line{config.RoleWorker: c.workers, config.RoleServer: c.servers}[h.Role]
	if h.Rank < 0 || h.Rank >= len(places) || places[h.Rank] != nil {
		return errs.Invalid("there is no place for a node that calls itself %v", h)
	}
	l.name, places[h.Rank] = h.String(), l
	return nil
}

// close ends the lines, and with that whoever reads from them.
func (c *conductor) close() {
	for _, l := range slices.Concat(c.servers, c.workers) {
		if l != nil {
			l.conn.Close()
		}
	}
}

// begin prepares servers before workers, checks bytes, and connects the limit.
func (c *conductor) begin() error {
	prepare := command{Verb: verbPrepare, Spec: c.opts.spec()}
	for _, role := range [][]*line{c.servers, c.workers} {
		if _, err := c.tell(prepare, role); err != nil {
			return err
		}
	}
	if _, err := c.exchange(command{Verb: verbCheck, Count: checks}); err != nil {
		return err
	}
	opened, err := c.tell(command{Verb: verbOpen}, c.servers[:1])
	if err != nil {
		return err
	}
	_, err = c.tell(command{Verb: verbConnect, Addr: opened[0].Addr}, c.workers[:1])
	return err
}

// calibrate warms up, and finds how many exchanges make a round.
func (c *conductor) calibrate() (err error) {
	stack := func(n int) (time.Duration, error) {
		r, err := c.exchange(command{Verb: verbMeasure, Count: n})
		return longest(r), err
	}
	bare := func(n int) (time.Duration, error) {
		r, err := c.bareExchange(n)
		return longest(r), err
	}
	if c.opts.Count > 0 {
		c.opts.Rounds = min(c.opts.Rounds, c.opts.Count)
		c.perStack = (c.opts.Count + c.opts.Rounds - 1) / c.opts.Rounds
		c.perRaw = max(c.perStack, firstCount)
		if _, err = bare(c.perRaw); err == nil {
			_, err = stack(c.perStack)
		}
		return err
	}
	half := c.opts.Duration / time.Duration(2*c.opts.Rounds)
	if c.perStack, err = howMany(half, c.opts.Inflight, stack); err != nil {
		return err
	}
	c.perRaw, err = howMany(half, 1, bare)
	return err
}

// howMany finds how many exchanges take the given time, and warms up by trying.
func howMany(target time.Duration, atLeast int, try func(n int) (time.Duration, error)) (int, error) {
	n := max(firstCount, 2*atLeast)
	for _, goal := range []time.Duration{min(nextTime, target) / 4, min(nextTime, target), target} {
		took, err := try(n)
		if err != nil {
			return 0, err
		}
		n = scaled(n, took, goal)
	}
	return max(n, atLeast), nil
}

// scaled is the number of exchanges that take goal when n have taken took.
func scaled(n int, took, goal time.Duration) int {
	return int(min(max(float64(n)*float64(goal)/float64(max(took, 1)), 1), mostCount))
}

// longest of the times that nodes have measured.
func longest(replies []reply) (most time.Duration) {
	for _, r := range replies {
		most = max(most, r.Elapsed)
	}
	return most
}

// round measures the limit, then the exchange.
func (c *conductor) round() error {
	bare, err := c.bareExchange(c.perRaw)
	if err != nil {
		return err
	}
	replies, err := c.exchange(command{Verb: verbMeasure, Count: c.perStack})
	if err != nil {
		return err
	}
	limit, err := collect(bare, c.bare)
	if err != nil {
		return err
	}
	stack, err := collect(replies, c.stack)
	if err != nil {
		return err
	}
	c.limits = append(c.limits, limit)
	c.ratios = append(c.ratios, stack/limit)
	c.account(replies)
	return nil
}

// collect adds the latencies of a round to those of all rounds, and returns the round's median in us.
func collect(replies []reply, all latencies) (float64, error) {
	own := newLatencies()
	for _, r := range replies {
		if r.Latencies == nil {
			continue
		}
		if err := own.merge(r.Latencies); err != nil {
			return 0, fmt.Errorf("histogram of a node: %w", err)
		}
	}
	if own.count() == 0 {
		return 0, errs.Invalid("a round has measured nothing")
	}
	all.h.Merge(own.h)
	return own.micros(50), nil
}

// account adds up what the processes have used. Of nodes in one process only one counts.
func (c *conductor) account(replies []reply) {
	seen := map[int]bool{}
	for _, r := range replies {
		if !seen[r.PID] {
			c.allocs += r.Allocs
			c.cpu += r.CPU
		}
		seen[r.PID] = true
	}
	c.elapsed += longest(replies[:len(c.workers)])
	c.exchanges += int64(c.perStack) * int64(len(c.workers))
}

// exchange has the servers serve while the workers do what the command says. The workers' replies are first.
func (c *conductor) exchange(cmd command) ([]reply, error) {
	return c.tell(cmd, c.servers, c.workers)
}

// bareExchange has worker 0 and server 0 exchange without stepvan.
func (c *conductor) bareExchange(count int) ([]reply, error) {
	return c.tell(command{Verb: verbLimit, Count: count}, c.servers[:1], c.workers[:1])
}

// tell sends a command to groups of nodes, in this order, and collects the replies, those of
// the last group first.
func (c *conductor) tell(cmd command, groups ...[]*line) (replies []reply, failed error) {
	for _, g := range groups {
		for _, l := range g {
			if err := l.send(cmd); err != nil {
				return nil, fmt.Errorf("%s: %w", l.name, err)
			}
		}
	}
	slices.Reverse(groups)
	return collectReplies(slices.Concat(groups...))
}

// collectReplies waits for one reply of each node, all at once, so that the first failure ends it.
func collectReplies(lines []*line) ([]reply, error) {
	replies := make([]reply, len(lines))
	results := make(chan error, len(lines))
	for i, l := range lines {
		go func() { results <- l.answer(&replies[i]) }()
	}
	for range lines {
		if err := <-results; err != nil {
			return nil, err // what the others say is read until their lines are closed
		}
	}
	return replies, nil
}
