package stress

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/peer"
	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/tensor"
)

// peerWork says how a peer works.
type peerWork struct {
	Hosts  bool  // the scheduler is in its process
	Leaves bool  // it stops at SIGINT; else it closes its node
	Heap   bool  // its sources lie on the Go heap
	Bytes  int64 // that go from each peer to each other one
}

// phase is what peers do when one of them dies.
type phase string

const (
	connecting phase = "connect"
	planning   phase = "make plans"
	running    phase = "run"
	resting    phase = "between runs"
	grouping   phase = "group operations"
	closing    phase = "close plans"
)

var phases = []phase{connecting, planning, running, resting, grouping, closing}

// peerProgram is the program of a peer.
type peerProgram struct {
	*childProgram
	ctx   context.Context
	nodes []*ps.Node // the peer, and the scheduler where this process hosts it
	p     *peer.Peer

	deaths      chan string    // names of the dead
	interrupted chan struct{}  // closed when a signal has ended the nodes
	later       sync.WaitGroup // memory that is given back in the background
}

// peer runs a peer of the environment's settings.
func (c *childProgram) peer(ctx context.Context) error {
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, syscall.SIGINT) // its goroutine stays for ever
	was, err := takeStock()
	if err != nil {
		return err
	}
	x := &peerProgram{childProgram: c, ctx: ctx, deaths: make(chan string, peersOfDeaths)}
	if err := x.start(); err != nil {
		c.report(event{Kind: evEnded, Text: err.Error(), Leaks: was.leaks()})
		return nil
	}
	x.interrupted = make(chan struct{})
	go func() {
		if _, ok := <-interrupts; ok {
			x.interrupt()
			close(x.interrupted)
		}
	}()
	c.report(event{Kind: evStarted})
	text := "interrupted"
	if !x.obey() {
		text = textOf(x.stop(ctx))
	}
	x.later.Wait()
	signal.Stop(interrupts)
	close(interrupts)
	c.report(event{Kind: evEnded, Text: text, Leaks: was.leaks()})
	return nil
}

func (x *peerProgram) start() error {
	s, _, err := config.FromProcess()
	if err != nil {
		return err
	}
	all, opts := []ps.Settings{s}, []ps.Option{ps.OnDead(x.died)}
	if x.job.Peer.Hosts {
		scheduler := s
		scheduler.Role, scheduler.NodeRank, scheduler.RootPort, all[0].RootPort = ps.RoleScheduler, -1, 0, 0
		all, opts = append(all, scheduler), append(opts, ps.OnListen(x.listening))
	}
	if x.nodes, err = ps.StartAll(x.ctx, all, opts...); err == nil {
		x.p = x.nodes[0].Peer()
	}
	return err
}

// died notes the death of an instance.
func (x *peerProgram) died(p ps.Peer, err error) {
	x.dead(p, err)
	select {
	case x.deaths <- p.Name():
	default: // the first ones are enough
	}
}

// stop stops the peer, and then the scheduler if it is here.
func (x *peerProgram) stop(ctx context.Context) (err error) {
	for _, n := range x.nodes {
		err = errors.Join(err, n.Stop(ctx))
	}
	return err
}

// interrupt ends everything at once, whatever the program is doing.
func (x *peerProgram) interrupt() {
	gone, cancel := context.WithCancel(x.ctx)
	cancel()
	if x.job.Peer.Leaves {
		_ = x.stop(gone) // it says that the others have not stopped
	}
	for _, n := range x.nodes {
		_ = n.Close()
	}
}

// obey runs the parent's commands until the stop command. It reports whether a signal has ended the node before.
func (x *peerProgram) obey() (interrupted bool) {
	for {
		select {
		case <-x.interrupted:
			return true
		case cmd, ok := <-x.commands:
			if !ok || cmd.Do == doStop {
				return false
			}
			x.do(cmd)
		}
	}
}

func (x *peerProgram) do(cmd command) {
	switch cmd.Do {
	case doSample:
		x.sample()
	case doPhase:
		x.phase(phase(cmd.Text))
	case doRefit:
		err := x.refits(cmd)
		x.report(event{Kind: evRan, Text: textOf(err)})
	case doBusy:
		runs, err := x.busy(time.Duration(cmd.Count) * time.Millisecond)
		x.report(event{Kind: evRan, Text: textOf(err), Count: runs})
	case doMesh:
		err := x.p.Connect(x.ctx, x.others()...)
		x.report(event{Kind: evRan, Text: textOf(err)})
	case doAwaitEnd:
		select {
		case <-x.nodes[0].Done():
			x.report(event{Kind: evGivenUp, Text: textOf(x.nodes[0].Err())})
		case <-time.After(bound):
			x.require(false, "nobody tells this peer that it was given up")
		}
	}
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// others are all other peers.
func (x *peerProgram) others() (list []stepvan.Rank) {
	for i := range x.p.Size() {
		if r := stepvan.Rank(i); r != x.p.Rank() {
			list = append(list, r)
		}
	}
	return list
}

// all are the ranks of all peers.
func (x *peerProgram) all() []stepvan.Rank {
	list := append(x.others(), x.p.Rank())
	slices.Sort(list)
	return list
}

// phase does what a phase is about until an error ends it, and reports that error. A peer that has stopped, and may go
// on, can reach the memory of a plan: that is given back in the background.
func (x *peerProgram) phase(what phase) {
	lost := func(err error) { x.report(event{Kind: evLost, Text: textOf(err)}) }
	switch what {
	case connecting:
		x.report(event{Kind: evMark})
		lost(x.p.Connect(x.ctx, x.others()...))
		return
	case grouping:
		lost(x.groups())
		return
	}
	e, err := x.newRefit(x.all())
	if err == nil {
		err = e.phase(what)
	}
	lost(err)
	if e != nil {
		x.later.Go(e.free)
	}
}

// phase runs a phase of plans until an error ends it.
func (e *refit) phase(what phase) error {
	if what == planning || what == closing {
		e.x.report(event{Kind: evMark})
		for i := 0; ; i++ {
			if err := e.planAgain(what, i); err != nil {
				return err
			}
		}
	}
	if err := e.make("weights"); err != nil {
		return err
	}
	defer e.watch()()
	for version := uint64(1); ; version++ {
		if what == resting && version > 3 {
			e.x.report(event{Kind: evMark})
			return e.rest()
		}
		if what == running && version == 3 {
			e.x.report(event{Kind: evMark})
		}
		if err := e.run(version); err != nil {
			return err
		}
	}
}

// planAgain makes a plan and closes it. In the phase of closing a run may be under way.
func (e *refit) planAgain(what phase, i int) error {
	if err := e.make(fmt.Sprint("plan ", i)); err != nil {
		return err
	}
	g, err := e.x.p.Group(fmt.Sprint("made ", i), e.ranks)
	if err != nil {
		return err
	}
	if err := g.Barrier(e.x.ctx); err != nil { // the end of a plan is the end of one that is being made elsewhere
		return err
	}
	if what == closing {
		e.last++
		e.write(e.last)
		if _, err := e.plan.Begin(e.last); err != nil && !errors.Is(err, stepvan.ErrRemote) { // another one has closed it
			return err
		}
	}
	closed := make(chan error, 1)
	go func() { closed <- e.plan.Close(e.x.ctx) }()
	if err := g.Barrier(e.x.ctx); err != nil {
		return err
	}
	select {
	case err := <-closed:
		return err
	case name := <-e.x.deaths: // one that has stopped may reach the memory
		return fmt.Errorf("close: %s died", name)
	}
}

// groups runs operations of a group until one fails.
func (x *peerProgram) groups() error {
	g, err := x.p.Group("all", x.all())
	if err != nil {
		return err
	}
	from, to := make([]int64, 5000), make([]int64, 5000)
	a, err := tensor.FromSlice(from)
	if err != nil {
		return err
	}
	b, err := tensor.FromSlice(to)
	if err != nil {
		return err
	}
	for round := 0; ; round++ {
		if round == 2 {
			x.report(event{Kind: evMark})
		}
		root := round % len(x.all())
		have, err := g.AllGather(x.ctx, []byte(fmt.Sprint(x.p.Rank(), " ", round)))
		if err != nil {
			return err
		}
		for i, text := range have {
			x.require(string(text) == fmt.Sprint(i, " ", round), "round %d: %q of peer %d in an all_gather", round, text, i)
		}
		for i := range from {
			from[i] = int64(round + i)
		}
		if err := g.Reduce(x.ctx, a.Strided(), b.Strided(), peer.Sum, root); err != nil {
			return err
		}
		if err := g.Broadcast(x.ctx, b.Strided(), root); err != nil {
			return err
		}
		for i, n := range to {
			x.require(n == int64(len(have)*(round+i)), "round %d: element %d of a reduction is %d", round, i, n)
		}
		if err := g.Barrier(x.ctx); err != nil {
			return err
		}
	}
}

// require reports what must never be.
func (x *peerProgram) require(ok bool, format string, args ...any) {
	if !ok {
		x.report(event{Kind: evWrong, Text: fmt.Sprintf(format, args...)})
	}
}

// refits makes a plan with some peers, runs it, closes it, and does all of it again.
func (x *peerProgram) refits(cmd command) error {
	e, err := x.newRefit(cmd.Ranks)
	if err != nil {
		return err
	}
	defer e.free()
	for i := range max(cmd.Plans, 1) {
		if err := e.make(fmt.Sprint(cmd.Text, " ", i)); err != nil {
			return err
		}
		for range cmd.Count {
			e.last++
			if err := e.run(e.last); err != nil {
				return errors.Join(err, e.plan.Close(x.ctx))
			}
		}
		if err := e.plan.Close(x.ctx); err != nil {
			return err
		}
	}
	g, err := x.p.Group(cmd.Text, cmd.Ranks)
	if err != nil {
		return err
	}
	return g.Barrier(x.ctx)
}

// refit is a plan in which each peer sends numbers to each other one. A number tells version, source, destination and
// place.
type refit struct {
	x            *peerProgram
	ranks        []stepvan.Rank
	n            int // numbers for each peer
	src, dst     []int64
	regions      []tensor.Tensor
	sends, recvs []peer.Move
	plan         *peer.Plan
	last         uint64
}

func (x *peerProgram) newRefit(ranks []stepvan.Rank) (*refit, error) {
	e := &refit{x: x, ranks: ranks, n: int(x.job.Peer.Bytes / 8)}
	src, err := e.empty(x.job.Peer.Heap)
	if err != nil {
		return nil, err
	}
	dst, err := e.empty(false)
	if err != nil {
		return nil, err
	}
	e.src, _ = tensor.As[int64](src)
	e.dst, _ = tensor.As[int64](dst)
	for i, r := range ranks {
		if r == x.p.Rank() {
			continue
		}
		view := func(t tensor.Tensor) tensor.Strided {
			v, err := t.AsStrided(tensor.ShapeOf(int64(e.n)), []int64{int64(len(ranks))}, int64(i))
			x.require(err == nil, "view: %v", err)
			return v
		}
		id := func(from, to stepvan.Rank) uint64 { return uint64(from)<<16 + uint64(to) }
		e.sends = append(e.sends, peer.Move{ID: id(x.p.Rank(), r), Peer: r, View: view(src)})
		e.recvs = append(e.recvs, peer.Move{ID: id(r, x.p.Rank()), Peer: r, View: view(dst)})
	}
	return e, nil
}

func (e *refit) empty(heap bool) (tensor.Tensor, error) {
	if heap {
		return tensor.FromSlice(make([]int64, e.n*len(e.ranks)))
	}
	t, err := e.x.nodes[0].Memory().Zeros(tensor.Int64, int64(e.n*len(e.ranks)))
	if err == nil {
		e.regions = append(e.regions, t)
	}
	return t, err
}

// free gives the memory back. An operation that has failed may hold it for a moment.
func (e *refit) free() {
	if e.plan != nil {
		if err := e.plan.Close(e.x.ctx); err != nil {
			e.x.require(false, "a plan does not close: %v", err)
		}
	}
	for i := range e.src { // nobody reads them any more, however late
		e.src[i] = -7
	}
	for _, t := range e.regions {
		err := t.Region().Close()
		for end := time.Now().Add(bound); err != nil && time.Now().Before(end); err = t.Region().Close() {
			time.Sleep(time.Millisecond)
		}
		e.x.require(err == nil, "memory is held: %v", err)
	}
}

func (e *refit) make(name string) (err error) {
	e.plan, err = e.x.p.Plan(e.x.ctx, name, e.sends, e.recvs)
	if err != nil {
		e.plan = nil
	}
	return err
}

// numberOf is what a peer sends to another with a version, at some place.
func numberOf(version uint64, from, to stepvan.Rank, at int) int64 {
	return int64(version)<<40 + int64(from)<<34 + int64(to)<<28 + int64(at)
}

func (e *refit) write(version uint64) {
	for i := range e.src {
		e.src[i] = numberOf(version, e.x.p.Rank(), e.ranks[i%len(e.ranks)], i/len(e.ranks))
	}
}

// whole reports whether all elements that have come are of a version.
func (e *refit) whole(version uint64) bool {
	me := e.x.p.Rank()
	for i := range e.dst {
		from := e.ranks[i%len(e.ranks)]
		if from != me && atomic.LoadInt64(&e.dst[i]) != numberOf(version, from, me, i/len(e.ranks)) {
			return false
		}
	}
	return true
}

// check looks whether what is served is whole.
func (e *refit) check() (version uint64) {
	version = e.plan.Version()
	e.x.require(version == 0 || e.whole(version), "version %d is served, and is a mixture", version)
	return version
}

func (e *refit) run(version uint64) error {
	e.write(version)
	h, err := e.plan.Begin(version)
	if err != nil {
		e.check()
		return err
	}
	if e.plan.Version() != 0 {
		e.check()
	}
	err = h.Wait(e.x.ctx)
	got := e.check()
	e.x.require(err != nil || got == version, "version %d is served after a run of version %d", got, version)
	if err == nil {
		for i := range e.src {
			e.src[i] = -7
		}
	}
	return err
}

// rest waits until the plan is over.
func (e *refit) rest() error {
	for end := time.Now().Add(bound); time.Now().Before(end); time.Sleep(time.Millisecond) { // only Err shows it
		if err := e.plan.Err(); err != nil {
			e.x.require(e.check() == 3, "version 3 is not served any more")
			_, refused := e.plan.Begin(4)
			e.x.require(refused != nil, "a plan runs without a peer: %v", err)
			return err
		}
	}
	return errors.New("the plan does not learn of a death")
}

// watch looks all the time whether what is served is whole. A run that begins meanwhile changes the version.
func (e *refit) watch() (stop func()) {
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-over:
				return
			case <-time.After(200 * time.Microsecond):
			}
			if v := e.plan.Version(); v != 0 && !e.whole(v) {
				e.x.require(e.plan.Version() != v, "a reader beside the runs sees a mixture of version %d", v)
			}
		}
	}()
	return func() { close(over); <-ended }
}
