package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
)

// coordinator gives commands to the nodes of one measurement, and collects their replies.
type coordinator struct {
	opts    Options
	turn    *turn          // rounds are taken in turns with other measurements
	workers []*controlConn // by rank
	servers []*controlConn
	inside  *controlGroup // of the nodes

	exchange  series
	limit     series // without nodes when it is not an exchange of the same nodes
	moves     moves  // of resharding
	samples   Samples
	copies    []float64 // us of a copy of the bytes, one for each round of the limit
	allocs    uint64    // of all rounds
	exchanges int64
}

// series is what is measured in each round: exchanges of stepvan, or those of the limit.
type series struct {
	verb     verb
	nodes    [][]*controlConn // servers, then workers
	timed    []*controlConn   // the nodes whose times count
	atLeast  int              // exchanges per worker and round
	perRound int              // found by calibrate
	all      latencies        // of all rounds
}

func newCoordinator(o *Options, t *turn, inside *controlGroup) *coordinator {
	c := &coordinator{opts: *o, turn: t, inside: inside, workers: make([]*controlConn, o.Workers), servers: make([]*controlConn, o.Servers)}
	c.exchange = series{verb: verbMeasure, nodes: [][]*controlConn{c.servers, c.workers}, timed: c.workers, atLeast: o.minCount(), all: newLatencies()}
	if o.Workload == Batch || o.Workload == Refit || o.Workload == Bus {
		c.exchange.timed = c.servers
	}
	c.limit = series{verb: verbLimit, atLeast: 1, all: newLatencies()}
	if o.Workload == Refit {
		c.limit.atLeast = refitCount
	}
	if l := o.limit(); l.bare() {
		caller := c.workers[:1]
		c.limit.nodes, c.limit.timed = [][]*controlConn{c.servers[:l.servers()], caller}, caller
		if o.Workload == Refit || o.Workload == Bus {
			c.limit.nodes, c.limit.timed = c.exchange.nodes, c.servers
		}
	}
	return c
}

// Bounds of a measurement.
const (
	checks           = 3       // exchanges of each slot
	singleCheckBytes = 4 << 20 // bytes; larger exchanges are checked once
	firstTryCount    = 2       // exchanges of the first try
	secondTryTime    = 100 * time.Millisecond
	maxCount         = 1 << 24 // per round
	incastCount      = 32      // of each worker, per round
	refitCount       = 4       // runs of a plan, per round
	minRounds        = 3       // even when the time is over
	refitRounds      = 7       // likewise, of resharding
)

// run does all rounds and ends the nodes. The caller has the turn, and still has it when run
// returns.
func (c *coordinator) run(ctx context.Context) (*Report, error) {
	err := c.begin()
	if err == nil {
		err = c.calibrate()
	}
	for i, spent := 0, time.Duration(0); i < c.opts.Rounds && err == nil; i++ {
		if c.opts.Count == 0 && i >= leastRounds(c.opts.Workload) && spent > c.opts.Duration {
			break
		}
		if err = c.turn.yield(ctx); err != nil {
			break
		}
		began := time.Now()
		err = c.round()
		spent += time.Since(began)
	}
	if err != nil {
		return nil, err
	}
	if c.opts.traits().alike {
		if err := c.check(); err != nil { // also what has come after the limit
			return nil, err
		}
	}
	if _, err := c.execute(command{Verb: verbFinish}, slices.Concat(c.servers, c.workers)); err != nil {
		return nil, err
	}
	return c.report(), nil
}

// registerNode reads the hello of a node and stores its connection by role and rank.
func (c *coordinator) registerNode(conn *controlConn) error {
	var h hello
	if err := conn.receive(&h); err != nil {
		return fmt.Errorf("hello of a node: %w", err)
	}
	ranks, at := map[stepvan.Role][]*controlConn{stepvan.RoleWorker: c.workers, stepvan.RoleServer: c.servers}[h.Role], h.Rank
	if h.Role == stepvan.RolePeer && c.opts.traits().alike {
		if ranks = c.workers; at >= len(c.workers) {
			ranks, at = c.servers, at-len(c.workers)
		}
	}
	if at < 0 || at >= len(ranks) || ranks[at] != nil {
		return errs.Invalid("hello of a node: %v is not one of the missing nodes", h)
	}
	conn.name, ranks[at] = h.String(), conn
	return nil
}

// close closes the connections, and ends every read from them.
func (c *coordinator) close() {
	for _, conn := range slices.Concat(c.servers, c.workers) {
		if conn != nil {
			conn.Close()
		}
	}
}

// begin prepares servers before workers, checks the bytes of some exchanges, and connects the nodes
// of the limit.
func (c *coordinator) begin() error {
	for i, role := range [][]*controlConn{c.servers, c.workers} {
		prepared, err := c.prepare(role, i == 0)
		if err != nil {
			return err
		}
		c.moves.add(prepared)
	}
	if err := c.check(); err != nil {
		return err
	}
	if c.limit.nodes == nil || c.opts.Workload == Bus { // whose limit has been made for the check
		return nil
	}
	answering := c.limit.nodes[:1]
	if c.opts.Workload == Refit {
		answering = c.limit.nodes
	}
	opened, err := c.execute(command{Verb: verbOpen}, answering...)
	if err != nil {
		return err
	}
	var addrs []string
	for _, r := range opened {
		addrs = append(addrs, r.Addr)
	}
	_, err = c.execute(command{Verb: verbConnect, Addrs: addrs}, c.limit.timed)
	return err
}

// prepare prepares the nodes of a role. Those of resharding in Python get their shares, since they cannot plan.
func (c *coordinator) prepare(nodes []*controlConn, servers bool) ([]reply, error) {
	for rank, conn := range nodes {
		cmd := command{Verb: verbPrepare, Spec: &c.opts}
		if c.opts.Workload == Refit && c.opts.Nodes.Python() {
			share, err := c.opts.Refit.Share(servers, rank)
			if err != nil {
				return nil, err
			}
			cmd.Share = share
		}
		if err := conn.send(cmd); err != nil {
			return nil, fmt.Errorf("%s: %w", conn.name, err)
		}
	}
	return collectReplies(nodes)
}

// check checks the bytes of some exchanges.
func (c *coordinator) check() error {
	count := checks
	if c.opts.Push+c.opts.Pull > singleCheckBytes {
		count = 1
	}
	checked, err := c.execute(command{Verb: verbCheck, Count: count}, c.exchange.nodes...)
	c.moves.checked(checked)
	return err
}

// calibrate warms up, and finds how many exchanges make a round.
func (c *coordinator) calibrate() (err error) {
	if c.opts.Count > 0 {
		c.opts.Rounds = min(c.opts.Rounds, c.opts.Count)
	}
	for _, s := range []*series{&c.exchange, &c.limit} {
		try := func(n int) (time.Duration, error) {
			r, err := c.execute(command{Verb: s.verb, Count: n}, s.nodes...)
			return longest(r), err
		}
		switch {
		case s.nodes == nil:
		case c.opts.Count > 0:
			s.perRound = (c.opts.Count + c.opts.Rounds - 1) / c.opts.Rounds
			_, err = try(s.perRound)
		default:
			s.perRound, err = calibrateCount(c.opts.Duration/time.Duration(2*c.opts.Rounds), s.atLeast, try)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// leastRounds is how many rounds there are at least, even when the time is over.
func leastRounds(w Workload) int {
	if w == Refit {
		return refitRounds
	}
	return minRounds
}

// minCount is the least number of exchanges of a worker in a round. With many workers it is so
// large that the beginning and the end of the round do not matter.
func (o *Options) minCount() int {
	switch o.Workload {
	case Incast:
		return incastCount
	case Refit:
		return refitCount
	}
	return o.Inflight
}

// calibrateCount finds how many exchanges take the target time. Its tries warm up.
func calibrateCount(target time.Duration, atLeast int, try func(n int) (time.Duration, error)) (int, error) {
	n := max(firstTryCount, atLeast)
	for _, goal := range []time.Duration{min(secondTryTime, target) / 4, min(secondTryTime, target), target} {
		took, err := try(n)
		if err != nil {
			return 0, err
		}
		if took >= target {
			return max(scaled(n, took, target), atLeast), nil
		}
		n = max(scaled(n, took, goal), atLeast)
	}
	return n, nil
}

// scaled is the number of exchanges that take goal when n of them took took.
func scaled(n int, took, goal time.Duration) int {
	return int(min(max(float64(n)*float64(goal)/float64(max(took, 1)), 1), maxCount))
}

// longest of the times that nodes have measured.
func longest(replies []reply) (most time.Duration) {
	for _, r := range replies {
		most = max(most, r.Elapsed)
	}
	return most
}

// round measures the limit, then the exchange.
func (c *coordinator) round() error {
	var this round
	if c.limit.nodes != nil {
		bare, err := c.measure(&c.limit)
		if err != nil {
			return err
		}
		this.limit = c.opts.limit().from(bare.times.micros(50))
		c.copies = append(c.copies, inMicros(bare.replies[0].Copy))
	}
	own, err := c.measure(&c.exchange)
	if err != nil {
		return err
	}
	n := c.exchange.perRound
	if c.opts.Workload == Refit {
		c.moves.ran(own.replies, n)
	} else { // in resharding all take part at once
		n *= len(c.workers)
	}
	c.exchanges += int64(n)
	c.allocs += own.spent.allocs
	this.p50, this.p99 = own.times.micros(50), own.times.micros(99)
	this.elapsed = inMicros(longest(own.replies[:len(c.workers)])) / float64(n)
	this.cpu = inMicros(own.spent.cpu) / float64(n)
	this.waiting = c.waitingCPU(own.replies)
	c.addSurroundings(&this, &own)
	c.samples.add(this)
	return nil
}

// measured is what a round of a series gives.
type measured struct {
	replies []reply   // of workers, then of servers
	times   latencies // of the timed nodes
	spent   usage     // of all processes

	beside    busyRun    // of the busy program
	throttled throttling // of the nodes
}

// measure measures a round of a series.
func (c *coordinator) measure(s *series) (m measured, err error) {
	before := used()
	if err := c.executeRound(s, &m); err != nil {
		return m, err
	}
	if c.opts.inOneProcess() {
		m.spent = before.since()
	}
	for _, r := range m.replies {
		m.spent.allocs += r.Allocs
		m.spent.cpu += r.CPU
	}
	m.times, err = c.collectLatencies(s)
	return m, err
}

// collectLatencies asks nodes for the latencies of the last round. It adds them to those of all
// rounds, and returns those of the round.
func (c *coordinator) collectLatencies(s *series) (latencies, error) {
	own := newLatencies()
	replies, err := c.execute(command{Verb: verbReport}, s.timed)
	if err != nil {
		return own, err
	}
	if c.opts.Workload == Refit {
		var all []ends
		for _, r := range replies {
			all = append(all, r.Ends)
		}
		if err := own.addRuns(all); err != nil {
			return own, err
		}
	}
	for _, r := range replies {
		if err := own.addCounts(r.Counts); err != nil {
			return own, fmt.Errorf("latencies of a node: %w", err)
		}
	}
	if own.count() == 0 {
		return own, errs.Invalid("a round measured nothing")
	}
	s.all.h.Merge(own.h)
	return own, nil
}

// execute sends a command to groups of nodes, in this order. It collects the replies, with those of
// the last group first.
func (c *coordinator) execute(cmd command, groups ...[]*controlConn) (replies []reply, failed error) {
	for _, g := range groups {
		for _, conn := range g {
			if err := conn.send(cmd); err != nil {
				return nil, fmt.Errorf("%s: %w", conn.name, err)
			}
		}
	}
	backwards := slices.Clone(groups) // the caller's own list stays as it is
	slices.Reverse(backwards)
	return collectReplies(slices.Concat(backwards...))
}

// collectReplies waits for the replies of all nodes at the same time, so that the first failure
// ends it.
func collectReplies(nodes []*controlConn) ([]reply, error) {
	replies := make([]reply, len(nodes))
	results := make(chan error, len(nodes))
	for i, conn := range nodes {
		go func() { results <- conn.receiveReply(&replies[i]) }()
	}
	for range nodes {
		if err := <-results; err != nil {
			return nil, err // the other goroutines end when their connections are closed
		}
	}
	return replies, nil
}

// report makes the report of all rounds.
func (c *coordinator) report() *Report {
	r, l, s := newReport(&c.opts), c.opts.limit(), c.samples
	c.moves.report(r)
	r.setFigures(c.exchange.all, s)
	r.Allocs = rounded(float64(c.allocs)/float64(c.exchanges), digits)
	if l.bare() {
		r.setLimit(s.Limit, s.Ratio, Curve{Latency: c.limit.all.curve(l.from), Count: c.limit.all.count()})
		r.setAbove()
		d, spec := &r.Details, l.spec()
		if d.Memcpy = rounded(median(c.copies), digits); d.Memcpy > 0 {
			d.Memory = rounded(float64(spec.Push+spec.Pull)*8/d.Memcpy/1e3, digits)
		}
	}
	return r
}
