package postoffice

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/link/progress"
)

// pipe is one end of a connection without a link, for tests under fake time.
type pipe struct {
	peer  *pipe
	to    service // of this end
	names link.Identity

	mu     sync.Mutex
	queue  []frame
	bye    *string
	mute   bool // frames posted here vanish
	hold   op   // frames of this kind wait for release
	held   []frame
	wake   chan struct{}
	broken chan struct{}
	once   sync.Once
}

func newPipe(a, b service, nameA, nameB link.Identity) (*pipe, *pipe) {
	broken := make(chan struct{})
	x := &pipe{to: a, names: nameB, wake: make(chan struct{}, 1), broken: broken}
	y := &pipe{to: b, names: nameA, wake: make(chan struct{}, 1), broken: broken}
	x.peer, y.peer = y, x
	go x.carry()
	go y.carry()
	return x, y
}

func (p *pipe) identity() link.Identity { return p.names }

func (p *pipe) post(f frame) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.bye != nil || p.mute:
	case p.hold == f.op:
		p.held = append(p.held, f)
	default:
		p.queue = append(p.queue, f)
	}
}

func (p *pipe) pump() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *pipe) finish(reason string) {
	p.mu.Lock()
	if p.bye == nil {
		p.bye = &reason
	}
	p.mu.Unlock()
	p.pump()
}

// cut breaks the connection under both ends.
func (p *pipe) cut() {
	first := p
	if p.peer != nil && fmt.Sprintf("%p", p.peer) < fmt.Sprintf("%p", p) {
		first = p.peer
	}
	first.once.Do(func() { close(p.broken) })
}

func (p *pipe) drop() { p.cut() }

func (p *pipe) member() {}

func (p *pipe) silence() {
	p.mu.Lock()
	p.mute = true
	p.mu.Unlock()
}

func (p *pipe) release() {
	p.mu.Lock()
	p.queue, p.hold = append(p.queue, p.held...), 0
	p.mu.Unlock()
	p.pump()
}

func (p *pipe) speak() {
	p.mu.Lock()
	p.mute = false
	p.mu.Unlock()
}

// carry delivers what is posted at this end to the other.
func (p *pipe) carry() {
	for {
		select {
		case <-p.wake:
		case <-p.broken:
			p.to.lost(p, fmt.Errorf("%w: connection reset", stepvan.ErrPeerLost))
			return
		}
		p.mu.Lock()
		out, bye := p.queue, p.bye
		p.queue = nil
		p.mu.Unlock()
		for _, f := range out {
			p.peer.to.deliver(p.peer, f)
		}
		if bye != nil {
			p.peer.to.lost(p.peer, fmt.Errorf("%w: %s", link.ErrLeft, *bye))
			p.to.lost(p, stepvan.ErrClosed)
			p.peer.finish("")
			return
		}
	}
}

// idle is a progress source where nothing ever happens.
type idle struct{}

func (idle) Arm() bool                  { return true }
func (idle) Poll(bool) int              { return 0 }
func (idle) Flush(bool)                 {}
func (idle) FDs() []progress.Descriptor { return nil }

// journal collects log lines.
type journal struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.Write(p)
}

func (j *journal) text() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.String()
}

func (j *journal) count(s string) int { return strings.Count(j.text(), s) }

// node is an office in a test cluster, with what it was told.
type node struct {
	*Office
	pipe *pipe // the office's end
	hold op    // of the pipe to be
	log  *journal

	mu   sync.Mutex
	dead []string
}

// Done is closed when the office is over.
func (f *Office) Done() <-chan struct{} { return f.done }

// Err says why the office is over: nil before that and after Stop.
func (f *Office) Err() error {
	f.lock()
	defer f.unlock()
	return f.cause
}

func (n *node) deadNodes() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]string(nil), n.dead...)
}

// leftNodes are the instances of which the log says that they have left.
func (n *node) leftNodes() (names []string) {
	for _, m := range regexp.MustCompile(`"(\w+ \d+) [^"]* left: `).FindAllStringSubmatch(n.log.text(), -1) {
		names = append(names, m[1])
	}
	return names
}

// cluster is a scheduler and nodes in one bubble of fake time.
type cluster struct {
	t      *testing.T
	s      *Scheduler
	o      SchedulerOptions
	log    *journal
	engine *progress.Engine
	nodes  []*node
}

var testShared = []Setting{{"DMLC_NUM_WORKER", "4"}, {"STEPVAN_ROUTING", "broadcast"}}

// inCluster runs f in a bubble with a scheduler.
func inCluster(t *testing.T, o SchedulerOptions, f func(t *testing.T, c *cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e, err := progress.NewEngine(idle{}, progress.Options{Mode: progress.Park})
		require.NoError(t, err)
		c := &cluster{t: t, log: &journal{}, engine: e}
		o.Log = zerolog.New(c.log)
		if o.Shared == nil {
			o.Shared = testShared
		}
		require.NoError(t, o.complete())
		c.o = o
		c.s = newScheduler(e, o)
		go c.s.run()
		defer c.end()
		f(t, c)
	})
}

func (c *cluster) end() {
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	for _, n := range c.nodes {
		_ = n.Stop(gone)
		if n.pipe != nil {
			n.pipe.cut()
		}
	}
	_ = c.s.Stop(gone)
	synctest.Wait()
	c.engine.Close()
}

// office makes a node that has not joined.
func (c *cluster) office(role stepvan.Role, rank stepvan.Rank, change func(*OfficeOptions)) *node {
	n := &node{log: &journal{}}
	o := OfficeOptions{
		Role: role, Rank: rank, Instance: AnyLocalRank, Options: c.o.Options,
		OnDead: func(i Peer, err error) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.dead = append(n.dead, i.Name()+": "+err.Error())
		},
	}
	o.Host, o.PID, o.Log = "h", 100+len(c.nodes), zerolog.New(n.log)
	if change != nil {
		change(&o)
	}
	require.NoError(c.t, o.complete())
	n.Office = newOffice(c.engine, o)
	n.ends.identify, n.ends.number = func(link.Identity) {}, func(uint64) {}
	n.ends.dial = func(context.Context, []string) (conn, error) {
		mine, its := newPipe(&officeInbox{n.Office}, &schedulerInbox{c.s}, link.Identity{Incarnation: n.Self().Incarnation, Name: string(role)}, link.Identity{ID: SchedulerID, Name: "scheduler"})
		n.pipe, mine.hold = mine, n.hold
		(&schedulerInbox{c.s}).opened(its)
		return mine, nil
	}
	c.nodes = append(c.nodes, n)
	return n
}

// join starts Join in the background; the channel has its error.
func (n *node) join(ctx context.Context, own ...string) chan error {
	done := make(chan error, 1)
	go func() { done <- n.Join(ctx, []string{"mem://scheduler"}, own) }()
	return done
}

// started brings up a whole cluster.
func (c *cluster) started() {
	c.t.Helper()
	var joins []chan error
	for role, size := range c.o.sizes() {
		for r := range size {
			joins = append(joins, c.office(role, stepvan.Rank(r), nil).join(c.t.Context(), fmt.Sprintf("mem://%s-%d", role, r)))
		}
	}
	for _, j := range joins {
		require.NoError(c.t, <-j)
	}
	require.NoError(c.t, c.s.Start(c.t.Context()))
}

// epoch is the scheduler's.
func (c *cluster) epoch() uint64 {
	c.s.lock()
	defer c.s.unlock()
	return c.s.epoch
}

// find returns the node with a role and rank.
func (c *cluster) find(role stepvan.Role, rank stepvan.Rank) *node {
	for _, n := range c.nodes {
		if s := n.Self(); s.Role == role && s.Rank == rank && n.Err() == nil {
			return n
		}
	}
	c.t.Fatalf("no %s %d", role, rank)
	return nil
}

// barrier enters in the background.
func (n *node) barrier(ctx context.Context, g Group, instances bool) chan error {
	done := make(chan error, 1)
	go func() { done <- n.Barrier(ctx, g, instances) }()
	return done
}

// pending asserts that nothing has come yet, once the bubble is idle.
func (c *cluster) pending(done ...chan error) {
	c.t.Helper()
	synctest.Wait()
	for i, d := range done {
		select {
		case err := <-d:
			c.t.Fatalf("call %d ended early: %v", i, err)
		default:
		}
	}
}

func within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	context.AfterFunc(ctx, cancel)
	return ctx
}

// requireLost asserts that err names the peer that is lost.
func requireLost(t *testing.T, err error, who string) {
	t.Helper()
	require.ErrorIs(t, err, stepvan.ErrPeerLost)
	require.ErrorContains(t, err, who)
}
