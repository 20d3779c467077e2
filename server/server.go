package server

import (
	"fmt"
	"slices"
	"sync"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/link/handles"
	"github.com/stepvan/stepvan/internal/link/progress"
	"github.com/stepvan/stepvan/internal/registry"
	"github.com/stepvan/stepvan/internal/staging"
	"github.com/stepvan/stepvan/internal/wire"
)

// Server receives requests and answers them. Make it with [New] before the transport listens, and call [Server.Join]
// once its workers are known.
type Server struct {
	transport *link.Transport
	opt       Options

	mu       sync.Mutex // guards what follows, in the parts too
	closed   bool
	rank     stepvan.Rank
	workers  []*workerPeer // paired, by rank; Join replaces the slice as a whole
	sessions sessionTable

	requests      requestTable
	batches       batcher
	stop          stopWatch
	buffers       bufferTable
	registrations registrationTable
	messages      messageSender
	responder     responder
	promises      promiseTable
	arrivals      arrivals
	stager        *staging.Stager

	views viewPool // has a mutex of its own
}

// Stats count what a server holds.
type Stats struct {
	Unanswered   int    // requests received and not answered
	Requests     int    // request objects in use and kept for reuse
	Messages     int    // message objects in use and kept for reuse
	Records      int    // response records in use and kept for reuse
	Chunks       int    // registered chunks, one for each worker and key
	UnseenErrors uint64 // of responses that nobody looked at before their record was recycled
	// Streamed counts answers that a device could have written, had their memory been registered.
	Streamed registry.Streamed
	// Registered is the memory that devices reach; nothing where no device needs that.
	Registered registry.Registered
	Staged     staging.Stats // what went through memory of the host, since no van reaches the accelerator
}

// New makes a server, and registers it with the transport for the channel of requests. It must be called before the
// transport's first Listen or Dial.
func New(t *link.Transport, o Options) (*Server, error) {
	o.setDefaults()
	if o.Memory == nil {
		o.Memory = t.Memory()
	}
	if o.Files == nil {
		o.Files = t.Memory()
	}
	if o.Policy < stepvan.LockStep {
		return nil, errs.Invalid("server: unknown batch policy (got %d)", int(o.Policy))
	}
	s := &Server{
		transport: t, opt: o,
		sessions: sessionTable{open: make(map[*link.Session]*workerPeer)},
	}
	s.requests.s, s.batches.s, s.stop.s, s.buffers.s, s.messages.s, s.responder.s = s, s, s, s, s, s
	s.registrations = registrationTable{s, map[*Registration]struct{}{}}
	s.arrivals.s, s.stager = s, staging.New(o.Memory, o.Log)
	s.promises.list = map[handles.ID]*promise{}
	t.Registry.Watch(o.Files)
	s.responder.copying = copying{
		by: o.Copying, caches: o.Caches, files: o.Files, registry: t.Registry, check: o.CheckBorrowed,
	}
	s.batches.lockStep, s.batches.arrival.Kind = o.Policy == stepvan.LockStep, progress.Request
	s.responder.records = handles.New(t.Engine(), progress.Rare, o.Handles, s.logUnseenError)
	t.Handle(link.ChannelRequest, requestHandler{s})
	return s, nil
}

// Join gives the server its rank and its workers. A worker's session may exist already, or open later. If it has ended
// already, the worker is gone.
func (s *Server) Join(rank stepvan.Rank, workers []Worker) error {
	list, err := sortedByRank(workers)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	known := make(map[wire.PeerID]*workerPeer)
	for _, w := range s.sessions.open {
		known[w.id] = w
	}
	s.rank = rank
	s.workers = make([]*workerPeer, len(list))
	for i, l := range list {
		w := known[l.ID]
		if w == nil {
			w = &workerPeer{id: l.ID, gone: s.sessions.early[l.ID]}
		}
		w.rank, w.name, w.paired = l.Rank, l.Name, true
		s.workers[i] = w
	}
	s.sessions.early = nil
	return nil
}

func sortedByRank(workers []Worker) ([]Worker, error) {
	if len(workers) == 0 {
		return nil, errs.Invalid("server: it has no workers: pair it with at least one")
	}
	list := slices.Clone(workers)
	slices.SortFunc(list, func(a, b Worker) int { return int(a.Rank - b.Rank) })
	for i := 1; i < len(list); i++ {
		if list[i].Rank == list[i-1].Rank {
			return nil, errs.Invalid("server: two workers have rank %d: %s and %s", list[i].Rank, list[i-1].Name, list[i].Name)
		}
	}
	return list, nil
}

// Rank returns the rank that [Server.Join] gave.
func (s *Server) Rank() stepvan.Rank {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rank
}

// Workers returns how many workers the server is paired with.
func (s *Server) Workers() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.workers)
}

// Stats returns the counts of this moment.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Stats{
		Unanswered: s.requests.slots.Used(), Requests: s.requests.slots.Len(), Messages: s.messages.list.Made(),
		Records: s.responder.records.Records(), UnseenErrors: s.responder.records.Unseen(),
		Streamed: s.transport.Registry.Streamed(), Registered: s.transport.Registry.Registered(),
		Staged: s.stager.Stats(),
	}
	for _, w := range s.workers {
		st.Chunks += len(w.chunks)
	}
	return st
}

// Close ends GetBatch, Respond and RegisterRecvBuffer with stepvan.ErrClosed. It drops all receive buffers and the
// requests that no batch has taken. It ends all registrations. The memory of requests that were handed out stays until
// their Respond, which then returns stepvan.ErrClosed. Close may be called again.
func (s *Server) Close() error {
	later := deferredWork{wake: true}
	s.mu.Lock()
	s.closed = true
	s.stop.end()
	var ended []*chunk
	for _, w := range s.workers {
		for w.first != nil {
			later.releaseMessage(s.requests.recycle(s.batches.pop(w)))
		}
		for _, c := range w.chunks {
			if c.user == nil {
				ended = append(ended, c)
			}
		}
	}
	s.buffers.dismiss(ended, &later)
	s.mu.Unlock()
	later.run(s)
	s.buffers.deregisterEnded()
	s.arrivals.closeStager()
	return s.registrations.end()
}

// Fail ends the work with all workers because of a loss that concerns the whole cluster. GetBatch, and whatever waits
// for a worker, fails with cause. Any goroutine may call it.
func (s *Server) Fail(cause error) {
	s.mu.Lock()
	sessions := make([]*link.Session, 0, len(s.sessions.open))
	for l := range s.sessions.open {
		sessions = append(sessions, l)
	}
	s.mu.Unlock()
	for _, l := range sessions {
		s.endSession(l, cause)
	}
}

func errClosed(op string) error {
	return fmt.Errorf("%s: the server was stopped: %w", op, stepvan.ErrClosed)
}

// logUnseenError logs a failed response whose record is recycled before anybody looked at it.
func (s *Server) logUnseenError(_ *handles.Record[responseState], err error) {
	s.opt.Log.Warn().Err(err).Msg("a worker did not receive a response, and the program did not ask for the outcome")
}

// deferredWork collects what must not be done with Server.mu held. The function that locked the mutex runs it after it
// has unlocked.
type deferredWork struct {
	withdraw []*chunk        // whose grants the van takes back
	release  []*link.Inbound // messages whose memory the link gets back
	fail     []*message      // that were never sent
	failure  error           // why
	flush    []*workerPeer   // whose outboxes may have something to send
	changes  []*bufferChange // that are complete
	wake     bool            // whether GetBatch is to look again
}

// releaseMessage has m released. It may be nil.
func (d *deferredWork) releaseMessage(m *link.Inbound) {
	if m != nil {
		d.release = append(d.release, m)
	}
}

// run does the work. The caller does not hold Server.mu.
func (d *deferredWork) run(s *Server) {
	for _, c := range d.withdraw {
		s.buffers.withdrawGrant(c)
	}
	for _, m := range d.release {
		m.Release()
	}
	for _, m := range d.fail {
		s.messages.Done(&m.out, d.failure)
	}
	for _, c := range d.changes {
		s.transport.Engine().Set(&c.done)
	}
	for _, w := range d.flush {
		s.messages.flush(w)
	}
	if d.wake {
		s.transport.Engine().Set(&s.batches.arrival)
	}
}
