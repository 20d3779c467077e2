package link

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link/progress"
	"github.com/stepvan/stepvan/internal/sparing"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/van"
)

// VanMaker makes a van for a node. wake must be called by vans without a descriptor when Poll would find something.
// A nil van without an error says that this transport is not to be had here; the node does without.
type VanMaker func(p van.Placer, wake func()) (van.Van, error)

// Options make a node. Zero values stand for the defaults.
type Options struct {
	Vans          []VanMaker        // at least one; a peer's addresses say which is preferred
	Memory        *tensor.Allocator // receive memory for what no handler places; not closed by the node
	Limits        wire.Limits
	PieceBytes    int64 // larger messages are cut; 1 MiB
	CreditBytes   int64 // payload of one peer that may be unreleased here; 256 MiB
	QueueMessages int   // messages that may wait for room, per peer; 1024
	// Visitors is how many peers may be connected that have not introduced themselves, and how many of which a service
	// says that they are visitors (Session.SetVisitor); 1024. Beyond that the oldest makes room for a newcomer.
	Visitors int
	// Remind: a peer that acknowledges nothing for one to two of these is told once what was sent; 0: never.
	Remind   time.Duration
	Progress progress.Options
	// Admit vets a peer that dialled; the text of its error is told to the peer. Called by the driver: must not block.
	Admit func(peer Identity) error
	// Opened is told of each session, whoever dialled, before anything is delivered on it. Called by the
	// driver: must not block. May be nil.
	Opened func(s *Session)
	// Reason says to a peer that was dialled at address why that was taken and what was preferred was not: Identity.Reason
	// there. Called by any goroutine: must not block. May be nil.
	Reason func(address string, passed []PassedOver) string
	// Rehearsal has a Handler panic on purpose.
	Rehearsal Rehearsal
	Log       zerolog.Logger
}

type vanSlot struct {
	van   van.Van
	caps  van.Caps
	mover van.Mover // nil: the van moves messages whole
	rest  rest      // driver only
}

// Transport is one end of all links of a worker, server or scheduler. All exported
// methods may be called from any goroutine, except where they say otherwise.
type Transport struct {
	vans          []vanSlot
	memory        *tensor.Allocator
	limits        wire.Limits
	pieceBytes    int64
	creditBytes   int64
	queueMessages int
	pause         time.Duration // that an unexplained loss waits for its cause
	attempt       time.Duration // that dialling an address may take which is not the last
	admit         func(Identity) error
	onOpen        func(*Session)
	reason        func(string, []PassedOver) string
	log           zerolog.Logger
	engine        *progress.Engine
	handlers      [Channels]Handler
	rehearsal     *rehearsal // nil: none
	identity      atomic.Pointer[Identity]
	epoch         atomic.Uint64
	backlogs      atomic.Int32
	events        [64]van.Event // driver only
	at            *van.Event    // that is, or was last, dispatched; driver only
	viaQuiet      bool          // what came last came over a quiet van; driver only

	strangers visitors // that have not introduced themselves
	guests    visitors // that have, and of which a service says that they are visitors

	refusals *sparing.Lines // of the log
	losses   losses
	leads    atomic.Int32 // sessions of TellLossFirst that are not lost

	remindEvery time.Duration
	reminder    *time.Timer // guarded by mu
	remindDue   atomic.Bool // the reminder's time has come

	sendAllMu sync.Mutex

	inbounds *Inbound                // unused ones; driver only
	released atomic.Pointer[Inbound] // others, on their way back to the driver

	dueMu    sync.Mutex
	dueList  []*Session
	dueSpare []*Session // driver only
	dueCount atomic.Int32

	mu       sync.Mutex
	sessions map[*Session]struct{}
	reached  int                    // sessions that were lost, whose peers may still reach granted memory
	brief    map[van.Endpoint]error // dialled, and lost before they had a session
	closed   bool
	empty    bool // emptied is closed
	done     chan struct{}
	emptied  chan struct{} // closed when the last session of a closed node is gone, and detached

	broken atomic.Pointer[error] // why Break was called

	doomMu    sync.Mutex
	doomed    []doom
	doomCount atomic.Int32
}

// NewTransport makes a node and starts its engine. Close ends it.
func NewTransport(o Options) (*Transport, error) {
	n := &Transport{
		memory: o.Memory, limits: o.Limits, pieceBytes: o.PieceBytes, creditBytes: o.CreditBytes,
		queueMessages: o.QueueMessages, attempt: attemptTime, pause: lossPause, admit: o.Admit, onOpen: o.Opened, reason: o.Reason, log: o.Log,
		sessions: map[*Session]struct{}{}, brief: map[van.Endpoint]error{}, emptied: make(chan struct{}), done: make(chan struct{}),
	}
	n.identity.Store(&Identity{})
	n.strangers.most, n.guests.most = o.Visitors, o.Visitors
	n.refusals = sparing.New(refusalLines, refusalPeriod, func(left int) {
		n.log.Warn().Msgf("%d more connections were refused within %v", left, refusalPeriod)
	})
	if o.Rehearsal.After > 0 {
		n.rehearsal = &rehearsal{node: n, left: o.Rehearsal.After, locked: o.Rehearsal.Locked}
	}
	n.fillDefaults()
	for _, make := range o.Vans {
		v, err := make(n, n.wake)
		if err != nil {
			n.closeVans()
			return nil, err
		}
		if v != nil {
			mover, _ := v.(van.Mover)
			n.vans = append(n.vans, vanSlot{van: v, caps: v.Caps(), mover: mover})
		}
	}
	if len(n.vans) == 0 || n.memory == nil {
		return nil, errs.Invalid("a node needs at least one van, and an allocator")
	}
	e, err := progress.NewEngine(n, o.Progress)
	if err != nil {
		n.closeVans()
		return nil, err
	}
	n.engine = e
	if n.remindEvery = o.Remind; o.Remind > 0 {
		n.mu.Lock()
		n.reminder = time.AfterFunc(o.Remind, n.callReminder)
		n.mu.Unlock()
	}
	return n, nil
}

func (n *Transport) fillDefaults() {
	if n.limits == (wire.Limits{}) {
		n.limits = wire.DefaultLimits
	}
	if n.pieceBytes == 0 {
		n.pieceBytes = 1 << 20
	}
	if n.creditBytes == 0 {
		n.creditBytes = 256 << 20
	}
	if n.queueMessages == 0 {
		n.queueMessages = 1024
	}
	if n.strangers.most == 0 {
		n.strangers.most, n.guests.most = defaultVisitors, defaultVisitors
	}
}

func (n *Transport) wake() {
	if n.engine != nil {
		n.engine.Wake()
	}
}

// Handle gives channel ch to h. Before the first Listen or Dial.
func (n *Transport) Handle(ch wire.Channel, h Handler) {
	if n.rehearsal != nil && credited(ch) {
		h = n.rehearsal.wrap(h)
	}
	n.handlers[ch] = h
}

// SetIdentity changes what the node says of itself in handshakes to come. The
// incarnation must not change while sessions are open.
func (n *Transport) SetIdentity(id Identity) { n.identity.Store(&id) }

// Identity is what the node says of itself.
func (n *Transport) Identity() Identity { return *n.identity.Load() }

// SetEpoch sets the membership view that headers carry.
func (n *Transport) SetEpoch(e uint64) { n.epoch.Store(e) }

// Engine drives the node; use it to wait.
func (n *Transport) Engine() *progress.Engine { return n.engine }

// Memory is the node's allocator.
func (n *Transport) Memory() *tensor.Allocator { return n.memory }

// Limits are the bounds of what a message may hold.
func (n *Transport) Limits() wire.Limits { return n.limits }

// PieceBytes is the size from which messages are cut.
func (n *Transport) PieceBytes() int64 { return n.pieceBytes }

// Log is the node's logger.
func (n *Transport) Log() *zerolog.Logger { return &n.log }

func (n *Transport) newSession(v *vanSlot, ep van.Endpoint, dialled bool) *Session {
	s := &Session{node: n, ep: ep, caps: v.caps, dialled: dialled, incarnation: n.identity.Load().Incarnation}
	if v.caps.OneSided {
		s.granter, _ = ep.(van.Granter)
	}
	n.mu.Lock()
	n.sessions[s] = struct{}{}
	n.mu.Unlock()
	return s
}

// settled reports whether nothing is left of the sessions of a closed node, the first time. mu is held.
func (n *Transport) settled() bool {
	if !n.closed || n.empty || len(n.sessions) > 0 || n.reached > 0 {
		return false
	}
	n.empty = true
	return true
}

// Sessions lists those that are open, in no order. Any goroutine.
func (n *Transport) Sessions() []*Session {
	n.mu.Lock()
	defer n.mu.Unlock()
	var open []*Session
	for s := range n.sessions {
		s.mu.Lock()
		if s.state == stateOpen {
			open = append(open, s)
		}
		s.mu.Unlock()
	}
	return open
}

// forget takes a session that is lost off the list. detaching: EventDetached is to come.
func (n *Transport) forget(s *Session, detaching bool) {
	n.mu.Lock()
	_, known := n.sessions[s]
	delete(n.sessions, s)
	if detaching {
		n.reached++
	}
	last := known && n.settled()
	n.mu.Unlock()
	if last {
		close(n.emptied)
	}
}

// detached notes that another session is over for good.
func (n *Transport) detached() {
	n.mu.Lock()
	n.reached--
	last := n.settled()
	n.mu.Unlock()
	if last {
		close(n.emptied)
	}
}
