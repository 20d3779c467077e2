package peer

import (
	"errors"
	"fmt"
	"sync"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/link/files"
	"github.com/stepvan/stepvan/internal/link/handles"
	"github.com/stepvan/stepvan/internal/link/progress"
	"github.com/stepvan/stepvan/internal/reuse"
	"github.com/stepvan/stepvan/internal/wire"
)

// Peer is what a program uses to move tensors to and from other peers. Any goroutine may call its methods.
type Peer struct {
	link    *link.Transport
	opt     Options
	results *handles.Table[result]
	memory  memory
	movers  movers

	mu      sync.Mutex
	rank    stepvan.Rank
	remotes []*remote // by rank; this peer is one of them
	ids     map[wire.PeerID]*remote
	over    error // why nothing can be begun any more
	edges   edgeTable
	spares  spares
	users   users
	plans   map[string]*Plan
	letters letters
	outbox  outbox
	windows windowTable
	soon    *task // small copies that the goroutine which holds mu makes after it has unlocked
	dials   dials
}

// memory is what other peers may be granted.
type memory struct {
	files.Memory
	watcher *files.Watcher
}

// users is what the program, and packages over this one, are told or keep.
type users struct {
	listeners map[Topic]*listener
	losses    []*lossWatcher
	kept      map[any]any
}

// spares are objects that wait for their next use.
type spares struct {
	transfers reuse.List[transfer]
	arrivals  reuse.List[arrival]
	accesses  reuse.List[access]
}

// Rank is the rank of this peer.
func (p *Peer) Rank() stepvan.Rank {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rank
}

// Size is the number of peers in the cluster.
func (p *Peer) Size() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.remotes)
}

// Members lists the peers of the cluster by rank.
func (p *Peer) Members() []Member {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]Member, len(p.remotes))
	for i, r := range p.remotes {
		list[i] = r.Member
	}
	return list
}

// unlock unlocks mu, and then makes the small copies that were put off.
func (p *Peer) unlock() {
	soon := p.soon
	p.soon = nil
	p.mu.Unlock()
	for soon != nil {
		t := soon
		soon, t.later = t.later, nil
		t.help()
	}
}

// run starts a task. A small one is for the goroutine that holds mu, once it has unlocked. Under mu.
func (p *Peer) run(t *task, chunks int, bytes int64) {
	t.reset(chunks)
	if bytes > smallBytes {
		p.movers.start(t)
		return
	}
	t.later, p.soon = p.soon, t
}

// smallBytes is how much the driver and the callers of this package copy themselves. Waking another goroutine for it
// takes longer.
const smallBytes = 64 << 10

// find returns the peer with a rank, which may be this one. Under mu.
func (p *Peer) find(op string, rank stepvan.Rank) (*remote, error) {
	if p.over != nil {
		return nil, errs.Ended(op, p.over)
	}
	if rank < 0 || int(rank) >= len(p.remotes) {
		return nil, errs.Invalid("%s: peer %d: the cluster has no such peer (got %d, want 0 to %d): give the rank of a peer", op, rank, rank, len(p.remotes)-1)
	}
	r := p.remotes[rank]
	if r.dead != nil {
		return nil, r.failure(op, r.dead)
	}
	return r, nil
}

// Check says why nothing can be begun with a peer, which is an error of [Peer.Send], or nil. It does not wait.
func Check(p *Peer, rank stepvan.Rank) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := p.find("check", rank)
	return err
}

// Service is the peer side of an instance. Package ps makes it and tells it of the cluster.
type Service struct {
	peer  *Peer
	early map[wire.PeerID]error // peers that were lost before Join. Under Peer.mu
}

// New makes the service and registers it with the transport. Call it before the transport's first Listen or Dial.
func New(t *link.Transport, o Options) *Service {
	o.setDefaults(t)
	p := &Peer{link: t, opt: o, ids: map[wire.PeerID]*remote{}, memory: memory{Memory: files.Memory{Files: o.Files, Registry: t.Registry}}}
	p.users, p.plans = users{listeners: map[Topic]*listener{}, kept: map[any]any{}}, map[string]*Plan{}
	p.outbox.p, p.windows.p, p.windows.others = p, p, map[Token]*attachment{}
	p.letters = letters{p: p, waits: map[*letterWait]struct{}{}, groups: map[string]*Group{}}
	p.movers.init(o.Movers, o.Recover)
	p.dials.inFlight = make(chan struct{}, o.Dials)
	p.results = handles.New(t.Engine(), progress.Answer, o.Handles, p.opt.logUnseen)
	t.Handle(link.ChannelPeer, sessionHandler{p: p})
	t.Handle(link.ChannelPeerBulk, bulkHandler{p: p})
	p.memory.watcher = files.Watch(o.Files, &p.mu, p.fileDropped)
	return &Service{peer: p}
}

// Peer is what programs use.
func (s *Service) Peer() *Peer { return s.peer }

// Join gives the peer its rank, and all peers of the cluster by rank, this one included. Nobody may dial a peer before
// it has joined.
func (s *Service) Join(rank stepvan.Rank, members []Member) error {
	p := s.peer
	p.mu.Lock()
	defer p.unlock()
	if rank < 0 || int(rank) >= len(members) {
		return errs.Invalid("join: rank: out of range (got %d, want 0 to %d): give the rank that the scheduler gave", rank, len(members)-1)
	}
	for i, m := range members {
		if m.Rank != stepvan.Rank(i) || p.ids[m.ID] != nil {
			return errs.Invalid("join: %s: its rank or its ID is wrong (got rank %d and ID %d in place %d): list each peer once, by rank", m.Name, m.Rank, m.ID, i)
		}
		r := &remote{peer: p, Member: m}
		r.stock.init(r)
		r.mail.init(r)
		r.letters.init(r)
		p.remotes = append(p.remotes, r)
		p.ids[m.ID] = r
	}
	p.rank = rank
	for id, err := range s.early {
		p.lost(id, err)
	}
	s.early = nil
	return nil
}

// Lost says that the postoffice has declared a peer dead, or that it has left. What names it fails, and nothing else.
// A peer that has left, with an error that wraps [link.ErrLeft], may have sent messages before that. They count as long
// as its session is open.
func (s *Service) Lost(id wire.PeerID, err error) {
	p := s.peer
	p.mu.Lock()
	defer p.unlock()
	if len(p.remotes) > 0 {
		p.lost(id, err)
		return
	}
	if s.early == nil {
		s.early = map[wire.PeerID]error{}
	}
	s.early[id] = err
}

// lost fails what names a peer. Under mu.
func (p *Peer) lost(id wire.PeerID, err error) {
	r := p.ids[id]
	switch {
	case r == nil || r.dead != nil:
	case r.session != nil && errors.Is(err, link.ErrLeft):
		r.left = err
	default:
		if r.dead = err; !errors.Is(err, stepvan.ErrPeerLost) {
			r.dead = fmt.Errorf("%w: %w", stepvan.ErrPeerLost, err)
		}
		r.end(r.failure("connection", r.dead)) // with its name, whatever err says
	}
}

// Fail ends all work, because of the loss of something that the whole cluster needs. What is in flight fails with
// cause, and so does everything later.
func (s *Service) Fail(cause error) {
	p := s.peer
	p.mu.Lock()
	defer p.unlock()
	p.end(cause)
}

// end fails everything. Under mu.
func (p *Peer) end(cause error) {
	if p.over != nil {
		return
	}
	p.over = cause
	for _, r := range p.remotes {
		r.end(cause)
	}
}

// Close ends the service. What is in flight fails with [stepvan.ErrClosed]. It returns when nothing copies any more.
func (s *Service) Close() error {
	p := s.peer
	p.mu.Lock()
	p.end(errClosed)
	p.unlock()
	p.memory.watcher.Stop()
	p.movers.close()
	return nil
}

var errClosed = fmt.Errorf("this node was stopped: %w", stepvan.ErrClosed)
