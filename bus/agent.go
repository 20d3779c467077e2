package bus

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/peer"
	"github.com/stepvan/stepvan/postoffice"
	"github.com/stepvan/stepvan/tensor"
)

// Board is where agents find each other. The board of a node is one.
type Board interface {
	Post(ctx context.Context, key string, value []byte) error
	Remove(ctx context.Context, key string) error
	// RemoveValue removes an entry that has this value, and no other one.
	RemoveValue(ctx context.Context, key string, value []byte) error
	Watch(ctx context.Context, prefix string, until func([]postoffice.Entry) bool) ([]postoffice.Entry, error)
}

// Options make an [Agent]. Zero values stand for the defaults.
type Options struct {
	Queue    int           // commands of a client that have not completed; 50,000
	Patience time.Duration // how long a command waits for others, if its client does not say; 30 s
	// Memory holds values that are being reduced. nil: memory that no other process sees, so that they travel in
	// messages.
	Memory *tensor.Allocator
	// Recover is deferred by the goroutines of the agent, to handle a panic there. nil: a panic ends the process.
	Recover func()
	Log     zerolog.Logger
}

const (
	defaultQueue    = 50_000
	defaultPatience = 30 * time.Second
)

// Agent follows the commands of its clients, together with the agents of their partners. It is a peer of the cluster
// and there is one agent at a peer. Any goroutine may call its methods.
type Agent struct {
	p      *peer.Peer
	board  Board
	opt    Options
	self   stepvan.Rank
	ctx    context.Context // until Close
	cancel context.CancelFunc
	work   sync.WaitGroup

	closing sync.Once
	stop    func() // of the letters

	mu          sync.Mutex
	changed     chan struct{} // closed at the next change of what follows
	finished    bool          // Close waits for the goroutines
	over        error         // why no command can succeed any more
	last        uint64        // number of an attempt, a client or a token; none is used twice
	entries     map[string]rankEntry
	living      map[stepvan.Rank]bool // agents
	clients     map[uint64]*session
	listeners   []*Listener
	rosters     map[uint64]*roster
	legs        map[legKey]*leg
	collections map[collectionKey]*collection
	dismissals  []dismissal
	refusals    []refusal
	outgoing    map[stepvan.Rank]*outgoing
	partial     map[stepvan.Rank][]byte // letters of which more is to come
}

// boardPrefix is the beginning of the keys of all agents.
const boardPrefix = "bus/"

// topic is the topic of the letters between agents.
const topic = peer.Topic("stepvan.bus")

// NewAgent starts an agent at a peer. Close ends it, before the node is stopped.
func NewAgent(ctx context.Context, p *peer.Peer, b Board, o Options) (*Agent, error) {
	if o.Queue == 0 {
		o.Queue = defaultQueue
	}
	if o.Patience == 0 {
		o.Patience = defaultPatience
	}
	if o.Recover == nil {
		o.Recover = func() {}
	}
	if o.Queue < 1 || o.Patience < 0 {
		return nil, errs.Invalid("agent: options: out of range (got a queue of %d and a patience of %v): give more", o.Queue, o.Patience)
	}
	a := &Agent{
		p: p, board: b, opt: o, self: p.Rank(), changed: make(chan struct{}),
		entries: map[string]rankEntry{}, living: map[stepvan.Rank]bool{}, clients: map[uint64]*session{}, rosters: map[uint64]*roster{},
		legs: map[legKey]*leg{}, collections: map[collectionKey]*collection{}, outgoing: map[stepvan.Rank]*outgoing{},
		partial: map[stepvan.Rank][]byte{},
	}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	stop, err := p.Listen(topic, a.receive)
	if err != nil {
		return nil, fmt.Errorf("agent: this peer has an agent already: %w", err)
	}
	a.stop = stop
	if err := b.Post(ctx, livingKey(a.self), nil); err != nil {
		stop()
		return nil, fmt.Errorf("agent: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.spawn(a.watch)
	return a, nil
}

func livingKey(rank stepvan.Rank) string { return boardPrefix + "a/" + strconv.Itoa(int(rank)) }

// watch follows the board.
func (a *Agent) watch() {
	_, err := a.board.Watch(a.ctx, boardPrefix, func(all []postoffice.Entry) bool {
		a.take(all)
		return false
	})
	if a.ctx.Err() == nil {
		a.end(fmt.Errorf("agent: the board: %w", err))
	}
}

// take notes what is on the board.
func (a *Agent) take(all []postoffice.Entry) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.living
	a.entries, a.living = map[string]rankEntry{}, map[stepvan.Rank]bool{}
	for i := range all {
		e := &all[i]
		if e.Owner.Role != stepvan.RolePeer {
			continue
		}
		if e.Key == livingKey(e.Owner.Rank) {
			a.living[e.Owner.Rank] = true
		} else if n, err := readEntry(e.Owner.Rank, e.Key, e.Value); err == nil {
			a.entries[e.Key] = n
		}
	}
	for rank := range before {
		if !a.living[rank] && rank != a.self {
			a.lost(rank)
		}
	}
	a.wake()
}

// lost ends what needs an agent that has died or left. Under mu.
func (a *Agent) lost(rank stepvan.Rank) {
	delete(a.partial, rank)
	for _, l := range a.legs {
		if l.r.has(rank) && !l.gone[rank] { // the letter of one that has left says more
			l.fail(lostError(rank), everybody)
		}
	}
	for key, c := range a.collections {
		if c.names(rank) {
			delete(a.collections, key)
		}
	}
}

func lostError(rank stepvan.Rank) error {
	return &stepvan.OpError{Op: "tensor bus", Peer: fmt.Sprintf("peer %d", rank), Err: fmt.Errorf("its agent has died or left: %w", stepvan.ErrPeerLost)}
}

// wake has all waiters look again. Under mu.
func (a *Agent) wake() {
	close(a.changed)
	a.changed = make(chan struct{})
}

// number returns a number that was never returned before. It is not 0. Under mu.
func (a *Agent) number() uint64 {
	a.last++
	return a.last
}

// end fails everything, because the agent can do nothing any more.
func (a *Agent) end(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over == nil {
		a.over = err
	}
	for _, l := range a.legs {
		l.fail(err, nobody)
	}
	for _, s := range a.clients {
		s.cancel(err)
	}
	a.wake()
}

// Close ends the agent. Its clients get [stepvan.ErrClosed], and the agents of their partners an error that names it.
// Close waits until nothing uses the memory of the clients. After an error it may be called again, and waits again.
func (a *Agent) Close(ctx context.Context) error {
	a.mu.Lock()
	if a.over == nil {
		a.over = errClosedAgent
	}
	var all []*session
	for _, s := range a.clients {
		all = append(all, s)
	}
	listeners := a.listeners
	a.mu.Unlock()
	for _, l := range listeners {
		_ = l.Close()
	}
	var failed error
	for _, s := range all {
		failed = errors.Join(failed, s.close(ctx, errClosedAgent))
	}
	a.closing.Do(func() { leave(ctx, a) })
	over := make(chan struct{})
	go func() {
		a.work.Wait()
		close(over)
	}()
	select {
	case <-over:
	case <-ctx.Done():
		failed = errors.Join(failed, errs.Late("agent: other peers still use the memory of batches: close it again, or stop the node", ctx.Err()))
	}
	return failed
}

// leave takes an agent off the board, and fails what is left.
func leave(ctx context.Context, a *Agent) {
	awaitReaders(ctx, a) // what the board says of this agent must not overtake its letters
	a.mu.Lock()
	var keys []string
	for key, n := range a.entries {
		if n.agent == a.self {
			keys = append(keys, key)
		}
	}
	a.mu.Unlock()
	for _, key := range append(keys, livingKey(a.self)) {
		_ = a.board.Remove(ctx, key) // it ends with the node at the latest
	}
	a.end(errClosedAgent)
	a.flush(ctx)
	a.cancel()
	a.stop()
	a.mu.Lock()
	a.finished = true
	a.mu.Unlock()
}

// spawn has a goroutine call f. Close waits for it. Under mu.
func (a *Agent) spawn(f func()) {
	if !a.finished {
		a.work.Go(func() {
			defer a.opt.Recover()
			f()
		})
	}
}

var errClosedAgent = errs.Closed("the agent was closed: start another one")
