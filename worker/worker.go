package worker

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/link/files"
	"github.com/stepvan/stepvan/internal/link/handles"
	"github.com/stepvan/stepvan/internal/link/progress"
	"github.com/stepvan/stepvan/internal/registry"
	"github.com/stepvan/stepvan/internal/staging"
	"github.com/stepvan/stepvan/internal/text"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/tensor"
)

// Worker sends exchanges to servers. Make it with [New] before the node dials,
// and [Worker.Join] it to its servers once their sessions are there.
type Worker struct {
	link    *link.Transport
	opt     Options
	limits  wire.Limits
	results *handles.Table[result]

	mu        sync.Mutex
	rank      stepvan.Rank
	closed    bool
	failed    error      // why no server can be worked with any more
	servers   serverList // paired; replaced as a whole by Join
	sessions  map[*link.Session]*serverPeer
	exchanges exchangeTable
	staging   stagedWork
	keys      keyTable
	overlap   overlapCheck
	lender    lender
	orphans   orphans
	fences    fenceSender
	// +checklocks:mu
	registrations map[*Registration]struct{}
	response      wire.Response // that the driver handles
}

// Stats count what a worker holds, and errors that nobody saw.
type Stats struct {
	Outstanding  int    // exchanges without all answers
	BusyKeys     int    // push keys of those
	Exchanges    int    // objects for exchanges, in use and kept for reuse
	Records      int    // records of handles, in use and kept for reuse
	UnseenErrors uint64 // errors of handles that nobody looked at before they were recycled
	// Streamed counts tensors that a device could have moved, had their memory been registered.
	Streamed registry.Streamed
	// Registered is the memory that devices reach; nothing where no device needs that.
	Registered registry.Registered
	Staged     staging.Stats // what went through memory of the host, since no van reaches the accelerator
}

// New makes a worker and registers it with the transport for the channels of
// responses and announcements. Call it before the transport's first Listen or Dial.
func New(t *link.Transport, o Options) *Worker {
	o.setDefaults()
	if o.Files == nil {
		o.Files = t.Memory()
	}
	w := &Worker{
		link: t, opt: o, limits: t.Limits(),
		sessions:      make(map[*link.Session]*serverPeer),
		keys:          keyTable{states: make(map[tensor.Key]*keyState)},
		registrations: make(map[*Registration]struct{}),
	}
	t.Registry.Watch(o.Files)
	w.lender = lender{
		memory: files.Memory{Files: o.Files, Registry: t.Registry}, pool: t.Memory(), largestSent: o.InPlaceBytes,
		servers: w.sessions,
	}
	w.staging.departures.w, w.staging.landings.w = w, w
	w.staging.stager = staging.New(t.Memory(), o.Log)
	w.fences.mu = &w.mu
	w.exchanges.completer = (*completer)(w)
	w.lender.dropped = files.Watch(o.Files, &w.mu, w.lender.withdrawFile)
	w.results = handles.New(t.Engine(), progress.Answer, o.Handles, w.logUnseen)
	t.Handle(link.ChannelResponse, responses{sessionEvents{w: w}})
	t.Handle(link.ChannelBulk, responses{sessionEvents{w: w}})
	t.Handle(link.ChannelRegister, announcements{sessionEvents{w: w}})
	return w
}

// Join gives the worker its rank and its servers, in any order. Exchanges
// in flight keep the servers that they were sent to.
func (w *Worker) Join(rank stepvan.Rank, servers []Server) error {
	list, err := byRank(servers)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rank = rank
	w.servers = make(serverList, len(list))
	for i, s := range list {
		v := w.peer(s.Session)
		v.rank, v.name = s.Rank, s.Name
		w.servers[i] = v
	}
	return nil
}

func byRank(servers []Server) ([]Server, error) {
	if len(servers) == 0 {
		return nil, errs.Invalid("join: servers: the worker has no servers: pair the worker with at least one")
	}
	list := slices.Clone(servers)
	slices.SortFunc(list, func(a, b Server) int { return int(a.Rank - b.Rank) })
	for i, s := range list {
		if s.Session == nil {
			return nil, errs.Invalid("join: %s: it has no session: dial it first", s.Name)
		}
		if i > 0 && s.Rank == list[i-1].Rank {
			return nil, errs.Invalid("join: %s and %s: both have rank %d: give each server a rank of its own", list[i-1].Name, s.Name, s.Rank)
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

// Stats returns the current counts.
func (w *Worker) Stats() Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	return Stats{
		Outstanding: w.exchanges.outstanding, BusyKeys: w.keys.busy, Exchanges: w.exchanges.exchanges.Made(),
		Records: w.results.Records(), UnseenErrors: w.results.Unseen(), Streamed: w.link.Registry.Streamed(),
		Registered: w.link.Registry.Registered(), Staged: w.staging.stager.Stats(),
	}
}

// Fail ends the work with all servers. What is in flight fails with cause, and so does every later exchange. If cause
// is a [*stepvan.OpError], their errors name its peer. Fail is for a loss that concerns the whole cluster. The
// sessions stay open, and the worker drops what servers still answer. Any goroutine may call it.
func (w *Worker) Fail(cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failed != nil {
		return
	}
	w.failed = errs.Ended("push_pull", cause)
	for _, r := range w.exchanges.requests.All() {
		// An exchange that the link has not taken yet fails when SendAll has returned.
		if x := r.exchange; x.state == inFlight {
			x.fail(w.failed)
			w.advance(x)
		}
	}
}

// Close refuses further exchanges with [stepvan.ErrClosed], and ends all registrations.
// Exchanges in flight continue until the transport is closed. Close may be called again.
func (w *Worker) Close() error {
	w.mu.Lock()
	w.closed = true
	w.lender.dropped.Stop()
	all := slices.Collect(maps.Keys(w.registrations))
	w.mu.Unlock()
	var err error
	for _, r := range all {
		err = errors.Join(err, r.Close())
	}
	w.staging.departures.closeStager()
	return err
}

var errClosed = fmt.Errorf("push_pull: this node was stopped: %w", stepvan.ErrClosed)

// logUnseen logs an error whose handle was recycled before anybody looked at it. The stop of this node is not worth a
// line.
func (w *Worker) logUnseen(r *handles.Record[result], err error) {
	if errors.Is(err, stepvan.ErrClosed) {
		return
	}
	w.opt.Log.Error().Err(err).Str("label", text.Cut(r.Value.label)).
		Msg("an exchange failed, and nobody waited for its handle")
}
