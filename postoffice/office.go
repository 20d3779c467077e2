package postoffice

import (
	"context"
	"fmt"
	"sync"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/link/progress"
	"github.com/stepvan/stepvan/internal/wire"
)

// officePhase is where an office is in its life.
type officePhase uint8

const (
	officeIdle    officePhase = iota
	officeJoining             // Join waits
	officeJoined
	officeStopping // Stop waits, or the node is broken: the scheduler may end the session
	officeOver     // stopped, or the scheduler is lost
)

// Office is the place of one instance in the cluster. All methods may be called from any goroutine.
type Office struct {
	deferred // guards what follows

	o        OfficeOptions
	engine   *progress.Engine
	barriers *barrierCalls
	board    *Board
	ends     linkEnds

	phase     officePhase
	scheduler conn
	where     string // the scheduler's addresses, for messages
	waiting   string // what the scheduler said last about the nodes that it waits for
	answered  bool   // the scheduler has said something
	early     error  // it has ended the session before that
	signs     signsOfLife
	attention attention

	self  Peer
	view  view
	cause error // why the office is over, nil after Stop

	joined  progress.Event
	stopped progress.Event
	stop    stopper
	done    chan struct{}
	lossMu  sync.Mutex // for OnDead and OnLeft
}

// linkEnds is what an office needs of its transport.
type linkEnds struct {
	identify func(link.Identity)
	number   func(epoch uint64)
	dial     func(context.Context, []string) (conn, error)
}

// NewOffice makes the office of node, before the node's first Listen or Dial: it
// takes link.ChannelControl and the node's identity.
func NewOffice(node *link.Transport, o OfficeOptions) (*Office, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	f := newOffice(node.Engine(), o)
	f.attention.looks, f.attention.lookNow = f.engine.Looks.Count, f.engine.WakeAll
	h := newControl(&officeInbox{f}, false, o.Log)
	f.ends = linkEnds{
		identify: node.SetIdentity, number: node.SetEpoch,
		dial: func(ctx context.Context, addrs []string) (conn, error) { return h.dial(ctx, node, addrs) },
	}
	node.SetIdentity(link.Identity{Incarnation: f.self.Incarnation, Name: f.self.Name()})
	node.Handle(link.ChannelControl, h)
	return f, nil
}

func newOffice(e *progress.Engine, o OfficeOptions) *Office {
	f := &Office{
		o: o, engine: e, barriers: newBarrierCalls(e), board: newBoard(e), view: view{gone: map[wire.PeerID]goneNode{}},
		stop: stopper{ended: make(chan struct{})}, done: make(chan struct{}),
		self: Peer{
			Role: o.Role, Rank: o.Rank, NodeRank: -1, LocalRank: o.Instance, GroupSize: o.GroupSize,
			Incarnation: newIncarnation(), Host: o.Host, PID: o.PID,
		},
	}
	f.board.ended, f.board.keeper, f.board.send = errNotJoined, f.schedulerName, f.tell
	f.board.broken = func(err error) {
		f.lock()
		defer f.unlock()
		f.end(err, "the scheduler's message cannot be understood")
	}
	return f
}

// tell sends a frame to the scheduler, if there is one.
func (f *Office) tell(fr frame) {
	f.lock()
	defer f.unlock()
	if f.scheduler != nil {
		f.send(f.scheduler, fr)
	}
}

// Barrier waits until every member of group has called it: every instance, or with
// instances == false one of every node, the same one each time. It waits as long as the members live,
// or until ctx ends; then the next Barrier over the same group continues this one.
//
// Errors:
//   - [stepvan.ErrInvalid], at once: the group has no worker, server or peer, this instance is not in it, or another
//     call of this instance waits in the same barrier;
//   - [stepvan.ErrPeerLost]: the member that the error names died or left, or the scheduler did;
//   - the error of ctx;
//   - [stepvan.ErrClosed] after Stop.
func (f *Office) Barrier(ctx context.Context, group Group, instances bool) error {
	f.lock()
	joined := f.phase >= officeJoined
	f.unlock()
	if !joined {
		return errs.Invalid("barrier over %s: this node has not joined the cluster: join it first", group)
	}
	return f.barriers.wait(ctx, f.o.Role, barrierKey{group, instances}, f.tell)
}

// Board is the board of the cluster. Its calls are refused before Join has returned.
func (f *Office) Board() *Board { return f.board }

// Self is this instance. Rank, local rank and ID are final once Join has returned nil.
func (f *Office) Self() Peer {
	f.lock()
	defer f.unlock()
	return f.self
}

// Epoch is the number of the newest view that this instance has heard of: 0 before the start.
func (f *Office) Epoch() uint64 {
	f.lock()
	defer f.unlock()
	return f.view.epoch
}

// Peers lists the instances that this one talks to, by rank: the servers of a worker, the workers of a server, the
// other peers of a peer. The list stays as it was at the start. The caller must not change it.
func (f *Office) Peers() []Peer {
	f.lock()
	defer f.unlock()
	return f.view.peers
}

// schedulerName is the scheduler for messages.
func (f *Office) schedulerName() string {
	if f.where == "" {
		return "scheduler"
	}
	return fmt.Sprintf("scheduler (%s)", f.where)
}
