package link

import (
	"cmp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link/progress"
	"github.com/stepvan/stepvan/internal/registry"
	"github.com/stepvan/stepvan/internal/sparing"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/van"
)

// VanMaker makes a van for a transport. A van without a descriptor calls wake when Poll would find something. A nil van
// without an error says that the van is unavailable here; the transport does without it.
type VanMaker func(p van.Placer, wake func()) (van.Van, error)

// Options make a transport. Zero values stand for the defaults.
type Options struct {
	Vans          []VanMaker        // at least one; the addresses of a peer say which it prefers
	Memory        *tensor.Allocator // receive memory for what no handler places; the transport does not close it
	Limits        wire.Limits
	PieceBytes    int64 // larger messages are cut; 1 MiB
	CreditBytes   int64 // payload of one peer that may be unreleased here; 256 MiB
	QueueMessages int   // messages that may wait for room, per peer; 1024
	// Visitors bounds two groups of peers, each on its own: those that have not introduced themselves, and those that a
	// service calls visitors ([Session.SetVisitor]); 1024. Beyond the bound a newcomer replaces the oldest.
	Visitors int
	// Remind is how often the transport looks for peers that acknowledge nothing. It tells such a peer once what was
	// sent, after one to two of these intervals. 0: never.
	Remind   time.Duration
	Progress progress.Options
	// Admit accepts or refuses a peer that dialled. The peer gets the text of the error. The driver calls it: it must
	// not block.
	Admit func(peer Identity) error
	// Opened is called for each session, whichever side has dialled, before anything is delivered on it. The driver
	// calls it: it must not block. May be nil.
	Opened func(s *Session)
	// Lost is called when a session ends, before the handlers hear of it. It is for the log. c is as in CountersOf.
	// The driver calls it: it must not block. May be nil.
	Lost func(s *Session, c *Counters, err error)
	// Reason returns the text of Identity.Reason for a peer that was dialled at address: why this address was taken and
	// the preferred ones were not. Any goroutine calls it: it must not block. May be nil.
	Reason func(address string, passed []PassedOver) string
	// Rehearsal makes a Handler panic on purpose.
	Rehearsal Rehearsal
	Log       zerolog.Logger
}

// setDefaults replaces zero values.
func (o *Options) setDefaults() {
	o.Limits = cmp.Or(o.Limits, wire.DefaultLimits)
	o.PieceBytes = cmp.Or(o.PieceBytes, 1<<20)
	o.CreditBytes = cmp.Or(o.CreditBytes, 256<<20)
	o.QueueMessages = cmp.Or(o.QueueMessages, 1024)
	o.Visitors = cmp.Or(o.Visitors, defaultVisitors)
}

// Transport is the local end of all sessions of a worker, server or scheduler. All exported methods may be called from
// any goroutine, except where they say otherwise.
type Transport struct {
	// Registry says which memory is registered with the devices of the vans. The transport makes it and ends it.
	Registry *registry.Registry

	options   Options
	engine    *progress.Engine
	vans      vanSet
	handlers  [Channels]Handler
	rehearsal *rehearsal // nil: none
	identity  atomic.Pointer[Identity]
	epoch     atomic.Uint64
	stuck     atomic.Int32 // sessions whose output waits for room
	sendAllMu sync.Mutex   // callers of SendAll lock several sessions one at a time

	dialer    dialer
	unknown   visitors // peers that have not introduced themselves
	visitors  visitors // peers that have, and that a service calls visitors
	refusals  *sparing.Lines
	reminder  reminder
	inbounds  inboundPool
	late      lateCompletions
	acksDue   handoff[*Session] // sessions that owe their peer an acknowledgement
	endings   handoff[ending]
	losses    lossQueue
	sessions  sessionSet
	closeDone chan struct{}         // Close has returned
	broken    atomic.Pointer[error] // why Break was called
}

// NewTransport makes a transport and starts its engine. Close ends it.
func NewTransport(o Options) (*Transport, error) {
	o.setDefaults()
	t := &Transport{options: o, closeDone: make(chan struct{})}
	t.vans.transport = t
	t.dialer = dialer{transport: t, attempt: attemptTime}
	t.losses.transport, t.losses.pause = t, lossPause
	t.inbounds.memory = o.Memory
	t.sessions.init()
	t.identity.Store(&Identity{})
	t.unknown.most, t.visitors.most = o.Visitors, o.Visitors
	t.refusals = sparing.New(refusalLines, refusalPeriod, func(left int) {
		o.Log.Warn().Msgf("%d more connections were refused within %v", left, refusalPeriod)
	})
	if o.Rehearsal.After > 0 {
		t.rehearsal = &rehearsal{transport: t, left: o.Rehearsal.After, locked: o.Rehearsal.Locked}
	}
	if err := t.vans.make(o.Vans); err != nil {
		t.closeVans()
		return nil, err
	}
	t.Registry = registry.New(t.vans.registrars(), o.Log)
	if len(t.vans.list) == 0 || o.Memory == nil {
		return nil, errs.Invalid("a transport needs at least one van, and an allocator")
	}
	e, err := progress.NewEngine((*source)(t), o.Progress)
	if err != nil {
		t.closeVans()
		return nil, err
	}
	t.engine = e
	t.reminder.start(t, o.Remind)
	return t, nil
}

// Handle gives channel ch to h. Before the first Listen or Dial.
func (t *Transport) Handle(ch wire.Channel, h Handler) {
	if t.rehearsal != nil && credited(ch) {
		h = rehearsing{h, t.rehearsal}
	}
	t.handlers[ch] = h
}

// SetIdentity sets what later handshakes say of this transport. The incarnation must not change while sessions are
// open.
func (t *Transport) SetIdentity(id Identity) { t.identity.Store(&id) }

// Identity is what the transport says of itself in handshakes.
func (t *Transport) Identity() Identity { return *t.identity.Load() }

// SetEpoch sets the membership view that headers carry.
func (t *Transport) SetEpoch(e uint64) { t.epoch.Store(e) }

// Engine drives the transport; use it to wait.
func (t *Transport) Engine() *progress.Engine { return t.engine }

// Memory is the allocator of the transport.
func (t *Transport) Memory() *tensor.Allocator { return t.options.Memory }

// Limits are the bounds of what a message may hold.
func (t *Transport) Limits() wire.Limits { return t.options.Limits }

// PieceBytes is the size above which messages are cut.
func (t *Transport) PieceBytes() int64 { return t.options.PieceBytes }

// Log is the logger of the transport.
func (t *Transport) Log() *zerolog.Logger { return &t.options.Log }

// Sessions lists the open sessions, in no order. Any goroutine.
func (t *Transport) Sessions() []*Session { return t.sessions.open() }

// newSession makes the session of a connection.
func (t *Transport) newSession(v *polledVan, ep van.Endpoint, dialled bool) *Session {
	s := &Session{transport: t, ep: ep, caps: v.caps, dialled: dialled}
	s.out = sender{session: s, incarnation: t.identity.Load().Incarnation}
	s.in.session, s.acks.session, s.grants.session, s.opening.session = s, s, s, s
	if v.caps.OneSided {
		s.grants.granter, _ = ep.(van.Granter)
	}
	if v.caps.Views {
		s.grants.viewer, _ = ep.(van.Viewer)
	}
	t.sessions.add(s)
	return s
}
