package worker

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/link/handles"
	"github.com/stepvan/stepvan/internal/text"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/tensor"
)

// Worker sends requests to servers. Make it with New before the node dials,
// and Join it to its servers once their sessions are there.
type Worker struct {
	node    *link.Transport
	opt     Options
	limits  wire.Limits
	rank    stepvan.Rank
	results *handles.Table[result]

	mu            sync.Mutex
	closed        bool
	failed        error     // why no server can be worked with any more
	servers       []*server // paired, by rank; replaced as a whole by Join
	sessions      map[*link.Session]*server
	outstanding   int
	calls         *call // free ones
	parts         []*part
	freeParts     *part
	keys          map[tensor.Key]*hold // push keys, busy or not
	busy          int                  // of these
	freeHolds     []*hold
	registrations map[memory]*Registration
	remains       []*call   // failed, of whose memory servers may still reach some
	fences        []*server // to send; see unlock
	dropped       dropped
	pulls         []span // scratch of checkApart
	unwatch       func()

	answer wire.Response // scratch of the driver
}

// Stats count what a worker holds and has met.
type Stats struct {
	Outstanding  int    // requests without all answers
	BusyKeys     int    // push keys of those
	Requests     int    // request objects in use and kept for reuse
	Records      int    // handle records in use and kept for reuse
	UnseenErrors uint64 // errors of handles that nobody looked at before they were recycled
}

// New makes a worker and registers it with the node for the channels of
// responses and registrations. Before the node's first Listen or Dial.
func New(n *link.Transport, o Options) *Worker {
	o.complete()
	if o.Files == nil {
		o.Files = n.Memory()
	}
	w := &Worker{
		node: n, opt: o, limits: n.Limits(),
		sessions:      make(map[*link.Session]*server),
		keys:          make(map[tensor.Key]*hold),
		registrations: make(map[memory]*Registration),
	}
	w.unwatch = o.Files.Watch(w.onDropped)
	w.results = handles.New(n.Engine(), o.Handles, w.forgotten)
	n.Handle(link.ChannelResponse, responses{w})
	n.Handle(link.ChannelBulk, responses{w})
	n.Handle(link.ChannelRegister, registers{w})
	return w
}

// Join gives the worker its rank and its servers, which order by rank. Requests
// in flight keep the servers that they were sent to.
func (w *Worker) Join(rank stepvan.Rank, servers []Server) error {
	list, err := ordered(servers)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rank = rank
	w.servers = make([]*server, len(list))
	for i, s := range list {
		v := w.session(s.Session)
		v.rank, v.name = s.Rank, s.Name
		w.servers[i] = v
	}
	return nil
}

func ordered(servers []Server) ([]Server, error) {
	if len(servers) == 0 {
		return nil, errs.Invalid("a worker without servers: pair it with one at least")
	}
	list := slices.Clone(servers)
	slices.SortFunc(list, func(a, b Server) int { return int(a.Rank - b.Rank) })
	for i, s := range list {
		if s.Session == nil {
			return nil, errs.Invalid("%s has no session: dial it first", s.Name)
		}
		if i > 0 && s.Rank == list[i-1].Rank {
			return nil, errs.Invalid("two servers with rank %d: %s and %s", s.Rank, list[i-1].Name, s.Name)
		}
	}
	return list, nil
}

// Servers returns S, the number of servers that a broadcast reaches.
func (w *Worker) Servers() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.servers)
}

// Rank returns the rank that Join gave.
func (w *Worker) Rank() stepvan.Rank {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rank
}

// Stats returns the counts of this moment.
func (w *Worker) Stats() Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := Stats{Outstanding: w.outstanding, BusyKeys: w.busy, Requests: w.outstanding}
	for c := w.calls; c != nil; c = c.next {
		s.Requests++
	}
	s.Records, s.UnseenErrors = w.results.Records(), w.results.Unseen()
	return s
}

// Close refuses further requests with stepvan.ErrClosed, and ends all registrations.
// Requests in flight go on until the node is closed. Idempotent.
func (w *Worker) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.unwatch()
	for m, r := range w.registrations {
		delete(w.registrations, m)
		r.tensor.Release()
	}
	return nil
}

var (
	errClosed         = fmt.Errorf("push_pull: this node was stopped: %w", stepvan.ErrClosed)
	errRegisterClosed = fmt.Errorf("register: this node was stopped: %w", stepvan.ErrClosed)
)

// forgotten logs an error whose handle was recycled before anybody looked at it. That this node has stopped is no news.
func (w *Worker) forgotten(r *handles.Record[result], err error) {
	if errors.Is(err, stepvan.ErrClosed) {
		return
	}
	w.opt.Log.Error().Err(err).Str("label", text.Cut(r.Value.label)).
		Msg("a request failed and nobody waited for its handle")
}
