package replay

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/rs/zerolog"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/device"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/peer"
	"github.com/stepvan/stepvan/tensor"
)

// Options of a [Ring].
type Options struct {
	Name       string            // by which collectors know it; 1 to 64 bytes
	Layout     Layout            // of the rows
	Rows       int64             // of each batch
	Depth      int               // slots; 0: 2
	Seed       uint64            // that of a batch is this and its tick
	Collectors []stepvan.Rank    // each packs a share of each batch
	Memory     *tensor.Allocator // of the slots: that of the node, so that collectors of this machine see them
	Device     *Device           // nil: the learner reads the slots themselves
	Log        zerolog.Logger
}

// check sets the defaults and refuses what makes no ring.
func (o *Options) check(p *peer.Peer) error {
	if o.Depth == 0 {
		o.Depth = 2
	}
	if err := checkName("ring", o.Name); err != nil {
		return err
	}
	if err := o.Layout.check(); err != nil {
		return err
	}
	switch {
	case o.Depth < 2:
		return errs.Invalid("ring: depth: too few slots (got %d, want 2 or more): one is hot while another one is filled", o.Depth)
	case o.Rows < 1 || o.Rows > maxRows:
		return errs.Invalid("ring: rows: out of range (got %d, want 1 to %d): give the rows of a batch", o.Rows, int64(maxRows))
	case o.Memory == nil:
		return errs.Invalid("ring: memory: there is no allocator: give that of the node")
	case len(o.Collectors) == 0:
		return errs.Invalid("ring: collectors: the list is empty: give the ranks of those that pack rows")
	}
	for i, rank := range o.Collectors {
		if rank < 0 || int(rank) >= p.Size() || slices.Contains(o.Collectors[:i], rank) {
			return errs.Invalid("ring: collectors: rank %d is wrong or there twice (want each once, 0 to %d): give the ranks of peers", rank, p.Size()-1)
		}
	}
	o.Collectors, o.Layout.Fields = slices.Clone(o.Collectors), slices.Clone(o.Layout.Fields)
	return nil
}

// Ring brings batches from collectors to a learner. See the doc of the package for its states.
type Ring struct {
	peer   *peer.Peer
	opt    Options
	id     uint64
	pinner device.Driver // of the twins; nil without
	stop   func()        // listening

	preparing sync.Mutex // held while the collectors are asked
	tasks     sync.WaitGroup
	wake      chan struct{} // has room for one: the watch is to look
	over      chan struct{} // closed by Close

	mu       sync.Mutex
	slots    []*slot
	twins    twins
	members  []stepvan.Rank // collectors that live
	lost     []stepvan.Rank
	attempts uint64
	hot      int // slot of the learner
	held     bool
	batch    Batch // of the hot slot
	pending  *pack // nil: idle
	closed   bool
}

// NewRing makes a ring, which exposes its slots. Collectors may be started before or after. When it fails, all memory
// is given back that was registered with a device.
func NewRing(p *peer.Peer, o Options) (_ *Ring, err error) {
	if err := o.check(p); err != nil {
		return nil, err
	}
	var id [8]byte
	_, _ = rand.Read(id[:])
	r := &Ring{
		peer: p, opt: o, id: binary.LittleEndian.Uint64(id[:]), members: slices.Clone(o.Collectors),
		wake: make(chan struct{}, 1), over: make(chan struct{}),
	}
	if err := r.twins.open(o.Device, &r.opt); err != nil {
		return nil, err
	}
	r.pinner = r.twins.driver
	defer func() {
		if err != nil {
			err = errors.Join(err, r.free(context.Background()))
		}
	}()
	for i := range o.Depth {
		s, err := slotMemory{r}.newSlot(i)
		if err != nil {
			return nil, err
		}
		r.slots = append(r.slots, s)
	}
	if r.stop, err = p.Listen(topicOf(o.Name, true), (listener{r}).mailed); err != nil {
		return nil, err
	}
	for _, rank := range o.Collectors {
		asker{r}.tell(rank, kindOpen)
	}
	r.tasks.Go(asker{r}.watch)
	return r, nil
}

// cold is the slot that is filled next. Under mu.
func (r *Ring) cold() int { return (r.hot + 1) % len(r.slots) }

var errRingClosed = errs.Closed("stepvan: replay: the ring is closed: make another one")

// checkRows refuses a batch of another size.
func (r *Ring) checkRows(op string, rows int64) error {
	if rows != r.opt.Rows {
		return errs.Invalid("%s: rows: not those of the ring (got %d, want %d): make a ring for batches of that size", op, rows, r.opt.Rows)
	}
	return nil
}

// StartPrepare asks the collectors for the batch of a tick, which goes to the cold slot. It does not wait for them. It
// returns false when this batch was asked for before. Each collector first waits until so many rows were written to its
// buffer as least says. Errors:
//
//   - [stepvan.ErrInvalid]: rows differs from the ring's, or the batch of another tick has not been taken;
//   - [stepvan.ErrClosed]: the ring is closed;
//   - the error of the last batch, when nobody has got it.
func (r *Ring) StartPrepare(tick Tick, rows int64, least uint64) (bool, error) {
	if err := r.checkRows("prepare", rows); err != nil {
		return false, err
	}
	p, err := r.begin(tick, least)
	if p == nil || err != nil {
		return false, err
	}
	asker{r}.ask(p)
	return true, nil
}

// begin opens the pack of a tick. nil says that it is there already.
func (r *Ring) begin(tick Tick, least uint64) (*pack, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, errRingClosed
	}
	if p := r.pending; p != nil {
		r.refresh(p)
		switch {
		case p.state == failed && !p.seen:
			p.seen = true
			return nil, p.err
		case p.state == failed:
		case p.tick == tick:
			return nil, nil
		default:
			return nil, errs.Invalid("prepare: tick %d: the batch of tick %d was not taken: sample it first", tick, p.tick)
		}
	}
	if len(r.members) == 0 {
		return nil, r.noneLeft()
	}
	r.pending = &pack{tick: tick, seed: r.opt.Seed + uint64(tick), least: least, slot: r.cold(), state: requested, packed: peer.NewSignal(r.peer)}
	return r.pending, nil
}

// noneLeft is the error of a ring whose collectors are all dead. Under mu.
func (r *Ring) noneLeft() error {
	return &stepvan.OpError{Op: "replay", Peer: namesOf(r.lost), Err: fmt.Errorf("no collector is left to pack rows: start the job again: %w", stepvan.ErrPeerLost)}
}

// Lost lists the collectors that have died or left, in the order in which the ring noticed.
func (r *Ring) Lost() []stepvan.Rank {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.lost)
}

// refresh looks whether the copy of a pack has ended. Under mu.
func (r *Ring) refresh(p *pack) {
	if p.state != submitted {
		return
	}
	switch over, err := r.twins.query(p.slot); {
	case err != nil:
		r.fail(p, fmt.Errorf("replay: tick %d: the copy to the device: %w", p.tick, err))
	case over:
		p.state = ready
	}
}

// fail ends a pack with an error. Under mu.
func (r *Ring) fail(p *pack, err error) {
	if p.state == requested {
		r.slots[p.slot].spoilt = true
	}
	p.state, p.err, p.seen = failed, err, false
	p.packed.Set()
}

// BatchReady reports whether Sample of a tick would return at once. It never waits. It returns the error of a batch
// that has failed.
func (r *Ring) BatchReady(tick Tick, rows int64) (bool, error) {
	if err := r.checkRows("batch ready", rows); err != nil {
		return false, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return false, errRingClosed
	case r.held:
		return r.batch.Tick == tick, nil
	case r.pending == nil || r.pending.tick != tick:
		return false, nil
	}
	r.refresh(r.pending)
	if r.pending.state == failed {
		r.pending.seen = true
		return false, r.pending.err
	}
	return r.pending.state == ready, nil
}

// WaitUntilReady waits until the batch of a tick is ready. It begins to prepare the batch when nothing is prepared.
// Beside the errors of StartPrepare:
//
//   - [stepvan.ErrInvalid]: another tick is prepared;
//   - [stepvan.ErrPeerLost]: the collectors have died;
//   - [stepvan.ErrRemote]: a collector cannot pack its rows. The text has its reason;
//   - an error that wraps ctx.Err(): it waits for collectors still, which the text names.
func (r *Ring) WaitUntilReady(ctx context.Context, tick Tick, rows int64) error {
	if err := r.checkRows("wait", rows); err != nil {
		return err
	}
	for {
		p, over, err := r.look(tick)
		if err != nil {
			return err
		}
		switch {
		case p == nil:
			if _, err := r.StartPrepare(tick, rows, 0); err != nil {
				return err
			}
			continue
		case over:
			return nil
		}
		if err := r.waitFor(ctx, p); err != nil {
			return err
		}
	}
}

// look says whether a wait for a tick is over, and which pack it is for. Without a pack one is to be begun.
func (r *Ring) look(tick Tick) (p *pack, over bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p = r.pending
	switch {
	case r.closed:
		return nil, false, errRingClosed
	case p == nil && r.held && r.batch.Tick == tick:
		return &pack{}, true, nil
	case p == nil:
		return nil, false, nil
	case p.tick != tick:
		return nil, false, errs.Invalid("sample: tick %d: the batch of tick %d is prepared: take that one first", tick, p.tick)
	}
	r.refresh(p)
	if p.state == failed {
		p.seen = true
		return nil, false, p.err
	}
	return p, p.state == ready, nil
}

// waitFor waits until the rows of a pack are there, or for the end of its copy.
func (r *Ring) waitFor(ctx context.Context, p *pack) error {
	if e := r.copying(p); e != nil {
		defer r.tasks.Done()
		err := device.Await(e, func() error { return cmp.Or(ctx.Err(), r.ended()) })
		if err != nil && ctx.Err() != nil {
			return errs.Late("sample: the copy to the device still runs: wait again", context.Cause(ctx))
		}
		return nil // look finds out how it ended
	}
	err := p.packed.Wait(ctx)
	if err != nil && ctx.Err() != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		return errs.Late(fmt.Sprintf("sample: tick %d: rows are missing from %s: wait again", p.tick, p.waitsFor()), context.Cause(ctx))
	}
	return err
}

// copying is the event of the copy of a pack, or nil. Close waits until the caller is done with it.
func (r *Ring) copying(p *pack) device.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.state != submitted || r.closed {
		return nil
	}
	r.tasks.Add(1)
	return r.twins.ready[p.slot]
}

// ended is an error once the ring is closed.
func (r *Ring) ended() error {
	select {
	case <-r.over:
		return errRingClosed
	default:
		return nil
	}
}

// Sample takes the batch of a tick, and waits for it. The slot of the batch becomes hot. Its memory is the caller's
// until [Ring.AfterTick]. Called again for the same tick before that, Sample returns the same batch. The errors are
// listed at [Ring.WaitUntilReady].
func (r *Ring) Sample(ctx context.Context, tick Tick, rows int64) (Batch, error) {
	if err := r.checkRows("sample", rows); err != nil {
		return Batch{}, err
	}
	for {
		b, ok, err := r.swap(tick)
		if ok || err != nil {
			return b, err
		}
		if err := r.WaitUntilReady(ctx, tick, rows); err != nil {
			return Batch{}, err
		}
	}
}

// swap makes the slot of a batch hot. ok is false when the batch is not ready.
func (r *Ring) swap(tick Tick) (b Batch, ok bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return b, false, errRingClosed
	case r.held && r.batch.Tick != tick:
		return b, false, errs.Invalid("sample: tick %d: the learner holds the batch of tick %d: call AfterTick first", tick, r.batch.Tick)
	case r.held:
		return r.batch, true, nil
	}
	p := r.pending
	if p == nil || p.tick != tick {
		return b, false, nil
	}
	r.refresh(p)
	if p.state != ready {
		return b, false, nil
	}
	r.hot, r.held, r.pending = p.slot, true, nil
	rows := r.slots[p.slot].memory
	if r.twins.driver != nil {
		rows = r.twins.slots[p.slot]
	}
	r.batch = Batch{Tick: tick, Seed: p.seed, Written: p.written, Held: p.held, Rows: rows, layout: &r.opt.Layout}
	return r.batch, true, nil
}

// AfterTick gives the hot slot back. On an accelerator, kernels that were queued to the learner's stream before still
// read the batch. Without a batch it does nothing.
func (r *Ring) AfterTick() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.held || r.closed {
		return nil
	}
	r.held = false
	return r.twins.gaveBack(r.hot)
}

// Close ends the ring and tells its collectors. It waits for copies to the device, and until no collector reaches the
// slots. When ctx ends before that, call it again. A second call does nothing.
func (r *Ring) Close(ctx context.Context) error {
	r.end()
	done := make(chan struct{})
	go func() { r.tasks.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
		return errs.Late("close a ring: collectors still reach its memory: close it again", context.Cause(ctx))
	}
	return r.free(ctx)
}

// end refuses whatever comes, and tells the collectors.
func (r *Ring) end() {
	r.preparing.Lock() // a call that asks collectors ends first, and later ones find the ring closed
	defer r.preparing.Unlock()
	r.mu.Lock()
	first, members := !r.closed, slices.Clone(r.members)
	if first {
		r.closed, r.held = true, false
		close(r.over)
		if p := r.pending; p != nil {
			r.fail(p, errRingClosed)
		}
	}
	r.mu.Unlock()
	if !first {
		return
	}
	r.stop()
	for _, rank := range members {
		asker{r}.tell(rank, kindEnd)
	}
}

// tell tells a collector something of the ring. The loss of one is noticed later.
func (x asker) tell(rank stepvan.Rank, kind messageKind) {
	err := x.ring.peer.Mail(rank, topicOf(x.ring.opt.Name, false), (&head{kind: kind, ring: x.ring.id}).append(nil))
	if err != nil && !errors.Is(err, stepvan.ErrPeerLost) && !errors.Is(err, stepvan.ErrClosed) {
		x.ring.opt.Log.Warn().Err(err).Int("peer", int(rank)).Msg("a collector was not told that its ring is there, or closed")
	}
}

// free gives all memory back.
func (r *Ring) free(ctx context.Context) error {
	r.preparing.Lock()
	defer r.preparing.Unlock()
	if err := r.twins.close(ctx); err != nil { // nobody else uses them once the ring is closed
		return err
	}
	for {
		s := r.last()
		if s == nil {
			return nil
		}
		if err := (slotMemory{r}).dropSlot(ctx, s); err != nil {
			return err
		}
		r.mu.Lock()
		r.slots = r.slots[:len(r.slots)-1]
		r.mu.Unlock()
	}
}

// last is the slot that is freed next.
func (r *Ring) last() *slot {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.slots) == 0 {
		return nil
	}
	return r.slots[len(r.slots)-1]
}
