package particle

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"sync"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link/progress"
	"github.com/stepvan/stepvan/peer"
)

// Loop runs the hooks of the particles that live at a peer. Any goroutine may call its methods.
type Loop struct {
	peer   *peer.Peer
	lib    peer.Library
	engine *progress.Engine
	hub    *hub
	opt    Options
	rank   stepvan.Rank
	name   string // "peer 3"
	life   uint32
	hello  hello
	early  []letter // before New has returned
	ctx    context.Context
	cancel context.CancelFunc
	unlist func() // ends the watch for losses

	mu        sync.Mutex
	devices   []*device
	remotes   map[stepvan.Rank]*remote
	particles map[ID]*particle // that live here
	places    []Place          // of all particles, by number
	futures   map[uint64]*Future
	open      map[*Call]struct{} // that hooks work at
	numbers   uint64             // the last number of a future
	chains    uint64             // the last number of a chain
	over      error              // the loop was closed, or its node has ended
	tasks     work
	put       putOff
}

// work counts the goroutines that a close waits for.
type work struct {
	running int
	shares  int           // whose memory is not free yet
	quiet   chan struct{} // closed when nothing runs any more; nil while nobody waits
}

// putOff is what unlock does. A goroutine that is woken would only wait for the lock before.
type putOff struct {
	dropped []*content
	woken   []*waiter
}

// Open opens the loop of a peer, which has one at a time. It does not wait for the other loops. Errors:
// [stepvan.ErrInvalid], and [stepvan.ErrClosed] after the end of the node.
func Open(p *peer.Peer, o Options) (*Loop, error) {
	if err := o.setDefaults(); err != nil {
		return nil, err
	}
	h, err := hubOf(p)
	if err != nil {
		return nil, err
	}
	members := p.Members()
	l := &Loop{
		peer: p, lib: p.Library(), hub: h, opt: o, rank: p.Rank(), remotes: map[stepvan.Rank]*remote{}, particles: map[ID]*particle{},
		futures: map[uint64]*Future{}, open: map[*Call]struct{}{},
	}
	l.engine = l.lib.Engine()
	l.hello = hello{devices: o.Devices, pickled: o.AllowPickled, nonce: newNonce()}
	ranks := o.Ranks
	if ranks == nil {
		for _, m := range members {
			ranks = append(ranks, m.Rank)
		}
	}
	for _, rank := range ranks {
		switch {
		case rank < 0 || int(rank) >= len(members):
			return nil, errs.Invalid("open: ranks: the cluster has no peer %d (want 0 to %d): give ranks of peers", rank, len(members)-1)
		case rank == l.rank:
			l.name = members[rank].Name
		default:
			r := &remote{loop: l, rank: rank, name: members[rank].Name}
			r.init()
			l.remotes[rank] = r
		}
	}
	switch {
	case l.name == "":
		return nil, errs.Invalid("open: ranks: this peer is not among them (rank %d of %v): open loops at those peers alone", l.rank, ranks)
	case !slices.Contains(ranks, o.Driver):
		return nil, errs.Invalid("open: driver: it has no loop (got peer %d, ranks %v): give one of the ranks", o.Driver, ranks)
	}
	for i := range o.Devices {
		l.devices = append(l.devices, &device{loop: l, index: i, chains: map[uint64]counts{}})
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	if err := l.greet(); err != nil {
		l.cancel()
		return nil, err
	}
	l.unlist = l.lib.OnLost(l.lost)
	return l, nil
}

func (r *remote) init() {
	r.views = map[uint64]*share{}
	r.calls.remote, r.answers.remote = r, r
}

// greet tells the others what this loop has, and reads what they have told before.
func (l *Loop) greet() error {
	l.mu.Lock()
	defer l.unlock() // frames that come meanwhile are behind the early ones
	if err := l.hub.open(l); err != nil {
		return err
	}
	for _, r := range l.remotes {
		r.send(&outgoing{frame: frame{op: opHello, data: l.hello.append(nil)}})
	}
	for _, m := range l.early {
		f, err := readFrame(m.body)
		l.take(m.from, &f, err)
	}
	l.early = nil
	return nil
}

// Rank is the rank of the peer.
func (l *Loop) Rank() stepvan.Rank { return l.rank }

// unlock unlocks mu, and then gives back what was put off.
func (l *Loop) unlock() {
	put := l.put
	l.put = putOff{}
	l.mu.Unlock()
	for _, p := range put.dropped {
		p.drop()
	}
	for _, w := range put.woken {
		w.set(l.engine)
	}
}

// wake ends the wait of a goroutine after mu is unlocked. Under mu.
func (l *Loop) wake(w *waiter) { l.put.woken = append(l.put.woken, w) }

// later drops a content after mu is unlocked. Under mu.
func (l *Loop) later(p *content) {
	if p != nil {
		l.put.dropped = append(l.put.dropped, p)
	}
}

// checkOver says why nothing can be begun any more. Under mu.
func (l *Loop) checkOver(op string) error {
	if l.over != nil {
		return errs.Ended(op, l.over)
	}
	return nil
}

// find returns where a particle lives.
func (l *Loop) find(op string, id ID) (Place, error) {
	if id < 0 || int64(id) >= int64(len(l.places)) {
		return Place{}, errs.Invalid("%s: particle %d: it was not created, or this loop does not know of it yet (want less than %d): create it first", op, id, len(l.places))
	}
	return l.places[id], nil
}

// Send sends a message to a particle, outside of hooks. It begins a chain. from is the particle that the hook sees as
// the sender, or [None]. It never blocks. Errors, beside those of [Future.Wait]:
//
//   - [stepvan.ErrInvalid]: there is no such particle, or the value cannot be sent;
//   - [stepvan.ErrNotSupported]: the value is pickled, and this loop does not allow it;
//   - [stepvan.ErrWouldBlock]: [Options].Outstanding calls have no result yet;
//   - [stepvan.ErrPeerLost], [stepvan.ErrClosed].
func (l *Loop) Send(from, to ID, message string, args Value) (*Future, error) {
	return l.send(nil, from, to, message, args)
}

func (l *Loop) send(c *Call, from, to ID, message string, args Value) (*Future, error) {
	if message == "" || len(message) > maxName {
		return nil, errs.Invalid("send: message: its name has a wrong length (got %d, want 1 to %d bytes): give another", len(message), maxName)
	}
	if args.Pickled && !l.opt.AllowPickled {
		return nil, errPickledHere("send")
	}
	p, err := l.opt.take("send", &args)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.unlock()
	f, err := l.call(c, opCall, from, to, message, p)
	if err != nil {
		if args.Lent != nil {
			p.free = func() { release(p.tensors) } // the program keeps what it has lent
		}
		l.later(p)
	}
	return f, err
}

// Get gets a view of a particle, outside of hooks: what its loop has shared, as it is at one moment between two hooks
// of its device. On one machine the tensors are the memory of the particle. They only may be read. Its loop copies
// before it writes as long as the future is not forgotten. Elsewhere they are a copy. [Loop.Send] lists the errors.
func (l *Loop) Get(from, to ID) (*Future, error) { return l.get(nil, from, to) }

func (l *Loop) get(c *Call, from, to ID) (*Future, error) {
	l.mu.Lock()
	defer l.unlock()
	return l.call(c, opGet, from, to, "", nil)
}

// call begins a call. It takes over p if it succeeds. Under mu.
func (l *Loop) call(c *Call, o op, from, to ID, name string, p *content) (*Future, error) {
	err := l.checkOver("send")
	if err == nil && c != nil {
		err = c.checkOpen()
	}
	if err != nil {
		return nil, err
	}
	place, err := l.find("send", to)
	if err != nil {
		return nil, err
	}
	if len(l.futures) >= l.opt.Outstanding {
		return nil, &stepvan.OpError{Op: "send", Err: fmt.Errorf("%d calls have no result yet: wait for some: %w", len(l.futures), stepvan.ErrWouldBlock)}
	}
	r := l.remotes[place.Rank]
	if r != nil && r.lost != nil {
		return nil, r.lost
	}
	f := l.newFuture(from, to, name, r)
	x := &Call{loop: l, view: o == opGet, to: to, from: from, name: name, args: p, future: f}
	if c != nil {
		x.chain, x.path = c.chain, c.path[:len(c.path):len(c.path)]
	} else {
		l.chains++
		x.chain = uint64(l.rank+1)<<40 | l.chains
	}
	x.path = append(x.path, step{l.rank, f.number})
	if r == nil {
		f.call = x
		x.deliver()
		return f, nil
	}
	r.send(&outgoing{frame: frame{op: o, number: f.number, to: to, from: from, chain: x.chain, name: name, path: x.path}, content: p, future: f})
	return f, nil
}

func (c *Call) checkOpen() error {
	switch {
	case c.state == ended:
		return fmt.Errorf("send: its hook has ended: %w", stepvan.ErrStale)
	case len(c.path) >= maxDepth:
		return errs.Invalid("send: particle %d: hooks are nested too deep (%d): end some first", c.to, maxDepth)
	}
	return nil
}

func (l *Loop) newFuture(from, to ID, name string, r *remote) *Future {
	l.numbers++
	f := &Future{loop: l, number: l.numbers, from: from, to: to, name: name, remote: r}
	l.futures[f.number] = f
	return f
}

// futuresOf lists the futures that need a loop.
func (r *remote) futures() (list []*Future) {
	for _, f := range r.loop.futures {
		if f.remote == r || f.acks > 0 {
			list = append(list, f)
		}
	}
	return list
}

// deliver queues a call to a particle of this loop, or refuses it. Under mu.
func (c *Call) deliver() {
	l := c.loop
	x := l.particles[c.to]
	switch {
	case l.over != nil:
		c.refuse(fail(codeClosed, "the loop of %s was closed", l.name))
	case x == nil:
		c.refuse(fail(codeInvalid, "the loop of %s has no such particle: create it first", l.name))
	case !c.view && !x.takes(c.name, l.opt.Pull):
		c.refuse(fail(codeInvalid, "the particle has no hook for it: register one first"))
	default:
		c.device = x.device
		x.device.add(c)
	}
}

// refuse ends a call that no hook gets.
func (c *Call) refuse(why error) {
	c.over()
	c.answer(nil, why)
}

// answer tells the caller the result. It takes over p. Under mu.
func (c *Call) answer(p *content, err error) {
	if c.future != nil {
		if f := (*failure)(nil); errors.As(err, &f) {
			err = f.at(c.future)
		}
		c.future.finish(p, err)
		return
	}
	reply := frame{op: opReply, number: c.own().number}
	if err != nil {
		c.loop.later(p)
		c.remote.send(&outgoing{frame: reply.with(failureOf(err))})
		return
	}
	c.remote.send(&outgoing{frame: reply, content: p})
}

// lostLoop is the error of what needs a loop that is over.
func lostLoop(name string, why error) error {
	if !errors.Is(why, stepvan.ErrPeerLost) {
		why = fmt.Errorf("%w: %w", why, stepvan.ErrPeerLost)
	}
	return &stepvan.OpError{Op: "particles", Peer: name, Err: why}
}

// lost is told of lost connections. Peer.mu is held, so the rest happens elsewhere.
func (l *Loop) lost(rank stepvan.Rank, err error) {
	go func() {
		defer l.opt.Recover()
		l.mu.Lock()
		defer l.unlock()
		if rank == l.rank {
			l.end(err)
		} else if r := l.remotes[rank]; r != nil {
			var named *stepvan.OpError
			if !errors.Is(err, stepvan.ErrPeerLost) || !errors.As(err, &named) {
				err = lostLoop(r.name, err)
			}
			r.lose(err)
		}
	}()
}

// end ends the loop. Under mu.
func (l *Loop) end(why error) {
	if l.over != nil {
		return
	}
	l.over = why
	for _, r := range l.remotes {
		r.lose(why)
	}
	for _, f := range slices.Collect(maps.Values(l.futures)) {
		f.finish(nil, why)
	}
	for _, d := range l.devices {
		d.drop(func(*Call) bool { return true })
		for _, w := range d.idle {
			l.wake(&w.waiter)
		}
		d.idle = nil
	}
	for c := range l.open {
		if c.state == waiting || c.state == resuming {
			c.wait.leave()
			c.goOn()
		}
	}
	for _, x := range l.particles {
		x.share.retire()
		x.share = nil
	}
	l.cancel()
}

// Close ends the loop, also for the others: what needs it fails there with [stepvan.ErrPeerLost], and here with
// [stepvan.ErrClosed]. It waits until all hooks have ended and nobody reaches the memory that was shared. When ctx ends
// before that, the error names a hook, and Close may be called again.
func (l *Loop) Close(ctx context.Context) error {
	l.mu.Lock()
	for _, r := range l.remotes {
		if l.over == nil && r.lost == nil {
			r.bye()
		}
	}
	l.end(errClosed)
	if l.tasks.quiet == nil {
		l.tasks.quiet = make(chan struct{})
	}
	quiet := l.tasks.quiet
	l.tasks.check(l)
	l.unlock()
	l.hub.close(l)
	l.unlist()
	select {
	case <-quiet:
		return nil
	default:
	}
	select {
	case <-quiet:
		return nil
	case <-ctx.Done():
		return l.closeLate(ctx.Err())
	}
}

var errClosed = errs.Closed("this loop was closed")

// bye tells the other loop that this one ends. Where there is no room for that, it tries again. Under mu.
func (r *remote) bye() {
	l := r.loop
	f := frame{op: opBye, life: l.life}
	body := f.append(nil)
	if !errors.Is(l.peer.Mail(r.rank, topic, body), stepvan.ErrWouldBlock) {
		return
	}
	l.tasks.running++
	go func() {
		defer l.opt.Recover()
		r.mail(body)
		l.mu.Lock()
		defer l.unlock()
		l.tasks.end(l)
	}()
}

// checkQuiet wakes Close when nothing runs. Under mu.
func (w *work) check(l *Loop) {
	if q := w.quiet; q != nil && l.over != nil && len(l.open) == 0 && w.running == 0 && w.shares == 0 {
		select {
		case <-q:
		default:
			close(q)
		}
	}
}

// endTask notes that a goroutine has ended. Under mu.
func (w *work) end(l *Loop) {
	w.running--
	w.check(l)
}

// closeLate says what a close waits for.
func (l *Loop) closeLate(err error) error {
	l.mu.Lock()
	defer l.unlock()
	for c := range l.open {
		return &stepvan.OpError{Op: "close", Err: errs.Late(fmt.Sprintf(
			"%d hooks have not ended, such as that for message %q of particle %d: have them return, and close again", len(l.open), c.name, c.to), err)}
	}
	return &stepvan.OpError{Op: "close", Err: errs.Late("others still reach memory of this loop: close it again", err)}
}

// panicError is a panic of a hook.
func panicError(v any) error { return fmt.Errorf("panic: %v\n%s", v, debug.Stack()) }

// device of a place on the wire: the rank in the upper half.
func placeNumber(p Place) uint64 { return uint64(uint32(p.Rank))<<32 | uint64(uint32(p.Device)) }

func placeOf(particle ID, n uint64) Place {
	return Place{Particle: particle, Rank: stepvan.Rank(int32(n >> 32)), Device: int(uint32(n))}
}
