package bus

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/tensor"
)

// session is a client at its agent. Agent.mu guards what is not said to be constant.
type session struct {
	a      *Agent
	id     uint64
	rank   int // of the client in its job, -1 if it does not say. Constant
	ctx    context.Context
	cancel context.CancelCauseFunc
	tasks  sync.WaitGroup // goroutines of commands

	order    sync.Mutex // of commands that begin
	ended    bool       // no command may begin
	open     map[string]*call
	count    int           // commands that have not completed
	room     chan struct{} // closed when a command completes; nil when nobody waits
	lanes    map[string]chan struct{}
	pairs    map[pairKey]*openPair
	batches  map[batchKey]*batch
	memories memories
	closing  sync.Once
}

// envelope is a command on its way to the agent, with what is not in its bytes.
type envelope struct {
	command  Command
	role     string        // the side of the client that the command is about; "" where it has one
	patience time.Duration // of the client; 0: that of the agent
	// waits is not nil if the caller of begin waits for the completion, at most until this context ends.
	waits context.Context
	// within is above 0 if the caller of begin may drive a round for so long.
	within time.Duration
}

// call is a command that has not completed.
type call struct {
	done   func(result)
	giveUp context.CancelCauseFunc // ends its waits; nil if it has none
}

// result is how a command ended.
type result struct {
	status Status
	err    error
}

// Status is the state of a batch at a client.
type Status struct {
	State BatchState
	Round uint64 // the last one that was asked for in either direction
	Err   error  // of a batch that has failed
	// Signal says that the other side has asked to send a round that this side has not asked to receive. It answers
	// StateSignal, and is false otherwise.
	Signal bool
}

// BatchState is the state of a batch.
type BatchState string

// The states of a batch.
const (
	Unknown      BatchState = "unknown"
	Registered   BatchState = "registered"
	Transferring BatchState = "transferring"
	Done         BatchState = "done"
	Failed       BatchState = "failed"
)

// connect makes a session.
func (a *Agent) connect(rank int) (*session, error) {
	if rank < -1 || rank >= maxWorld {
		return nil, errs.Invalid("client: rank: out of range (got %d, want 0 to %d, or -1): give the rank in the job", rank, maxWorld-1)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over != nil {
		return nil, a.over
	}
	s := &session{
		a: a, id: a.number(), rank: rank, open: map[string]*call{}, lanes: map[string]chan struct{}{}, pairs: map[pairKey]*openPair{},
		batches: map[batchKey]*batch{},
	}
	s.memories = memories{s, map[uint64]tensor.Tensor{}}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	a.clients[s.id] = s
	return s, nil
}

// check returns why no command of the client can succeed. Under mu.
func (s *session) check() error {
	if s.a.over != nil {
		return s.a.over
	}
	if s.ended {
		return errClosedClient
	}
	return nil
}

var errClosedClient = errs.Closed("the client was closed: make another one")

// begin takes a command. Commands begin in the order of the calls. done is called once, also when the command fails or
// is not known. The error is [stepvan.ErrWouldBlock] if too many commands have not completed; then done is not called.
// A caller that may drive a round does so within begin.
func (s *session) begin(e envelope, done func(result)) error {
	r, err := s.take(e, &call{done: done})
	switch {
	case r == nil:
	case e.waits != nil:
		r.runFor(e.waits)
	default:
		r.runWithin(e.within)
	}
	return err
}

// take has a command begin. It returns a round for the caller to drive, if it may.
func (s *session) take(e envelope, c *call) (*round, error) {
	s.order.Lock()
	defer s.order.Unlock()
	name := e.command.Base().Semaphore
	s.a.mu.Lock()
	err := s.check()
	switch {
	case err != nil:
	case s.count >= s.a.opt.Queue:
		err = fmt.Errorf("%s: %d commands of this client have not completed: wait for one: %w", e.command.Name(), s.count, stepvan.ErrWouldBlock)
	case name != "" && s.open[name] != nil:
		err = errs.Invalid("%s: semaphore_name: a command with this name has not completed (got %q): use a name once", e.command.Name(), name)
	}
	if err == nil {
		s.count++
		if name != "" {
			s.open[name] = c
		}
	}
	s.a.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if err := e.command.Check(); err != nil {
		s.complete(name, c, result{err: err})
		return nil, nil
	}
	return s.run(e, c, func(r result) { s.complete(name, c, r) }), nil
}

// complete tells of the end of a command.
func (s *session) complete(name string, c *call, r result) {
	s.a.mu.Lock()
	s.count--
	if name != "" {
		delete(s.open, name)
	}
	if s.room != nil {
		close(s.room)
		s.room = nil
	}
	s.a.mu.Unlock()
	c.done(r)
}

// awaitRoom returns a channel that is closed when a command completes.
func (s *session) awaitRoom() <-chan struct{} {
	s.a.mu.Lock()
	defer s.a.mu.Unlock()
	if s.room == nil {
		s.room = make(chan struct{})
		if s.count < s.a.opt.Queue || s.ended {
			close(s.room)
			ready := s.room
			s.room = nil
			return ready
		}
	}
	return s.room
}

// abandon ends the waits of a command that its client does not wait for any more.
func (s *session) abandon(name string, why error) {
	s.a.mu.Lock()
	defer s.a.mu.Unlock()
	if c := s.open[name]; c != nil && c.giveUp != nil {
		c.giveUp(why)
	}
}

// run has a command begin. Those that wait for others do so in goroutines, behind the earlier commands about the same
// pair or batch. It returns a round for the caller to drive.
func (s *session) run(e envelope, c *call, done func(result)) *round {
	switch x := e.command.(type) {
	case *QueryStatus:
		done(s.query(x, e.role))
	case *InitPair:
		before, finish := s.follow(nil, pairLane(x.PairName, x.LocalName))
		s.wait(e, c, before, func(ctx context.Context) error { return s.initPair(ctx, x) }, finish, done)
	case *RegisterTensors:
		before, finish := s.follow(x.Tensors, batchLane(e.role, x.BatchID))
		s.wait(e, c, before, func(ctx context.Context) error { return s.register(ctx, x, e.role) }, finish, done)
	case *CleanupBatch:
		before, finish := s.follow(nil, batchLane(e.role, x.BatchID))
		s.wait(e, c, before, func(ctx context.Context) error { return s.cleanup(ctx, batchKey{x.BatchID, e.role}) }, finish, done)
	case *Transfer:
		lane := batchLane(e.role, x.BatchID)
		if s.isFree(lane) {
			return s.transfer(x, e, done)
		}
		before, finish := s.follow(nil, lane)
		s.task(e, c, before, func(_ context.Context, err error) {
			defer finish()
			if err != nil {
				done(result{err: err})
				return
			}
			e.waits, e.within = nil, 0 // nobody waits in this goroutine
			s.transfer(x, e, done)
		})
	default:
		done(result{err: errs.Invalid("%T: the agent does not know this command: use one of %v", e.command, commandNames())})
	}
	return nil
}

// wait runs a command that waits for others.
func (s *session) wait(e envelope, c *call, before []<-chan struct{}, f func(context.Context) error, finish func(), done func(result)) {
	s.task(e, c, before, func(ctx context.Context, err error) {
		if err == nil {
			err = f(ctx)
		}
		finish()
		done(result{err: err})
	})
}

// task calls f in a goroutine, after earlier commands. f gets an error if these take too long.
func (s *session) task(e envelope, c *call, before []<-chan struct{}, f func(ctx context.Context, err error)) {
	patience := e.patience
	if patience <= 0 {
		patience = s.a.opt.Patience
	}
	given, giveUp := context.WithCancelCause(s.ctx)
	ctx, cancel := context.WithTimeout(given, patience)
	s.a.mu.Lock()
	c.giveUp = giveUp
	s.a.mu.Unlock()
	s.tasks.Go(func() {
		defer s.a.opt.Recover()
		defer giveUp(nil)
		defer cancel()
		for _, b := range before {
			select {
			case <-b:
			case <-ctx.Done():
				f(ctx, fmt.Errorf("%s: %w", e.command.Name(), s.late(ctx, "earlier commands of this client have not completed")))
				return
			}
		}
		f(ctx, nil)
	})
}

// late is the error of a wait that has ended in vain: in time, because the client was closed, or because it gave up.
func (s *session) late(ctx context.Context, what string) error {
	cause := context.Cause(ctx)
	if s.ctx.Err() != nil {
		return cause
	}
	return errs.Late("it took too long: "+what, cause)
}

func pairLane(pair, side string) string { return "p/" + pair + "/" + side }

func batchLane(role, id string) string { return "b/" + role + "/" + id }

// isFree reports whether no command of a lane runs.
func (s *session) isFree(lane string) bool {
	s.a.mu.Lock()
	defer s.a.mu.Unlock()
	return s.lanes[lane] == nil
}

// follow puts a command behind the earlier ones of a lane, and behind those that open the pairs of some tensors. finish
// lets the next one of the lane begin.
func (s *session) follow(tensors []TensorOfPair, lane string) (before []<-chan struct{}, finish func()) {
	s.a.mu.Lock()
	defer s.a.mu.Unlock()
	pairs := map[string]bool{}
	for _, t := range tensors {
		pairs[t.PairName] = true
	}
	for name, c := range s.lanes {
		kind, rest, _ := strings.Cut(name, "/")
		pair, _, _ := strings.Cut(rest, "/")
		if name == lane || kind == "p" && pairs[pair] {
			before = append(before, c)
		}
	}
	mine := make(chan struct{})
	s.lanes[lane] = mine
	return before, func() {
		s.a.mu.Lock()
		defer s.a.mu.Unlock()
		close(mine)
		if s.lanes[lane] == mine {
			delete(s.lanes, lane)
		}
	}
}

// close ends a session. What it has not completed fails with why, and so do its batches, at all agents. It returns when
// nothing uses its memory any more. After an error it may be called again.
func (s *session) close(ctx context.Context, why error) error {
	s.closing.Do(func() { s.end(why) })
	a := s.a
	gone := fmt.Errorf("a client of peer %d has ended: %w: %w", a.self, stepvan.ErrPeerLost, why)
	a.mu.Lock()
	var all []*batch
	for _, b := range s.batches {
		all = append(all, b)
	}
	a.mu.Unlock()
	var failed error
	for _, b := range all {
		failed = errors.Join(failed, b.end(ctx, gone, everybody))
	}
	s.tasks.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	s.memories.releaseAll()
	if failed == nil {
		delete(a.clients, s.id)
	}
	return failed
}

// end fails what a session has not completed, and says on the board that its ranks are gone.
func (s *session) end(why error) {
	a := s.a
	a.mu.Lock()
	s.ended = true
	if s.room != nil {
		close(s.room)
		s.room = nil
	}
	var entries []rankEntry
	for _, x := range s.pairs {
		n := x.entry
		if n.state = entryGone; !x.failed || x.roster != nil {
			entries = append(entries, n)
		} else {
			n.state = entryFailed
			entries = append(entries, n)
		}
	}
	a.mu.Unlock()
	s.cancel(why)
	for _, n := range entries {
		if n.state == entryGone {
			a.post(n)
			continue
		}
		short, cancel := a.brief()
		_ = a.board.Remove(short, n.key())
		cancel()
	}
}

// place implements transport.
func (s *session) place(v *tensor.Strided) (h TensorHandle, release func(), err error) {
	number, err := s.memories.share(v.Memory())
	return TensorHandle{Memory: number}, func() { s.memories.unshare(number) }, err
}

// empty implements transport.
func (s *session) empty(_ context.Context, d tensor.DType, shape tensor.Shape) (tensor.Tensor, error) {
	if m := s.a.opt.Memory; m != nil {
		return m.Empty(d, shape.Dims()...)
	}
	return tensor.Tensor{}, errs.Invalid("the agent has no memory for clients: set Options.Memory")
}

// free implements transport.
func (s *session) free(t *tensor.Tensor) error { return t.Region().Close() }
