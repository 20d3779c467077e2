package server

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/link/handles"
	"github.com/stepvan/stepvan/internal/link/progress"
	"github.com/stepvan/stepvan/internal/wire"
)

// Server receives requests and answers them. Make it with New before the node
// listens, and Join it to its workers once they are known.
type Server struct {
	node      *link.Transport
	opt       Options
	responses *handles.Table[response]

	arrival progress.Event // something that GetBatch may be waiting for

	mu            sync.Mutex
	collecting    bool // somebody is in GetBatch
	closed        bool
	rank          stepvan.Rank
	workers       []*remote // paired, by rank; replaced as a whole by Join
	sessions      map[*link.Session]*remote
	ready         int         // workers with a request in the queue
	wanted        int         // so many wake GetBatch
	refusals      int         // of the entries in the queues
	lockStep      bool        // batches are taken in lock-step, or will be
	absent        int         // looks in a row that found nobody serving; see BeginStop
	watch         *time.Timer // of these looks
	requests      []*incoming
	freeRequests  *incoming
	unanswered    int
	freeLetters   *letter
	freeReplies   *reply
	letters       int // made, free ones too
	registrations []*ReceiveBuffer
	retractions   []*retraction
	views         views
	generation    uint32 // of the latest registration
}

// Stats count what a server holds and has met.
type Stats struct {
	Unanswered   int    // requests received and not answered
	Requests     int    // request objects in use and kept for reuse
	Messages     int    // message objects in use and kept for reuse
	Records      int    // response records in use and kept for reuse
	Chunks       int    // registered (worker, key)s
	UnseenErrors uint64 // of responses that nobody looked at before they were recycled
}

// New makes a server and registers it with the node for the channel of requests.
// Before the node's first Listen or Dial.
func New(n *link.Transport, o Options) (*Server, error) {
	o.complete()
	if o.Memory == nil {
		o.Memory = n.Memory()
	}
	if o.Policy < LockStep {
		return nil, errs.Invalid("batch policy %d", int(o.Policy))
	}
	s := &Server{node: n, opt: o, lockStep: o.Policy == LockStep, sessions: make(map[*link.Session]*remote)}
	s.responses = handles.New(n.Engine(), o.Handles, s.forgotten)
	n.Handle(link.ChannelRequest, receiver{s})
	return s, nil
}

// Join gives the server its rank and its workers. A worker's session may be
// there before or come later.
func (s *Server) Join(rank stepvan.Rank, workers []Worker) error {
	list, err := ordered(workers)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	known := make(map[wire.PeerID]*remote)
	for _, r := range s.sessions {
		known[r.node] = r
	}
	s.rank = rank
	s.workers = make([]*remote, len(list))
	for i, w := range list {
		r := known[w.Node]
		if r == nil {
			r = &remote{node: w.Node}
		}
		r.rank, r.name, r.paired = w.Rank, w.Name, true
		s.workers[i] = r
	}
	return nil
}

func ordered(workers []Worker) ([]Worker, error) {
	if len(workers) == 0 {
		return nil, errs.Invalid("a server without workers: pair it with one at least")
	}
	list := slices.Clone(workers)
	slices.SortFunc(list, func(a, b Worker) int { return int(a.Rank - b.Rank) })
	for i := 1; i < len(list); i++ {
		if list[i].Rank == list[i-1].Rank {
			return nil, errs.Invalid("two workers with rank %d: %s and %s", list[i].Rank, list[i-1].Name, list[i].Name)
		}
	}
	return list, nil
}

// Rank returns the rank that Join gave.
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
		Unanswered: s.unanswered, Requests: len(s.requests), Messages: s.letters,
		Records: s.responses.Records(), UnseenErrors: s.responses.Unseen(),
	}
	for _, r := range s.workers {
		st.Chunks += len(r.chunks)
	}
	return st
}

// Close ends GetBatch, Respond and RegisterRecvBuffer with stepvan.ErrClosed, and
// drops what no batch has taken, and all registrations. The memory of requests that
// were handed out stays until their Respond, which then says stepvan.ErrClosed. Idempotent.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	if s.watch != nil {
		s.watch.Stop()
	}
	var held []*link.Inbound
	var ended []*chunk
	for _, r := range s.workers {
		for r.first != nil {
			if m := s.recycle(s.pop(r)); m != nil {
				held = append(held, m)
			}
		}
		for _, c := range r.chunks {
			if c.user == nil {
				ended = append(ended, c)
			}
		}
	}
	to := s.dismiss(ended)
	s.mu.Unlock()
	for _, r := range to {
		s.pump(r)
	}
	for _, m := range held {
		m.Release()
	}
	s.node.Engine().Set(&s.arrival)
	return nil
}

func errClosed(op string) error {
	return fmt.Errorf("%s: the server was stopped: %w", op, stepvan.ErrClosed)
}

// forgotten logs a failed response whose record was recycled before anybody looked at it.
func (s *Server) forgotten(_ *handles.Record[response], err error) {
	s.opt.Log.Warn().Err(err).Msg("a response was not received, and nobody asked for its outcome")
}
