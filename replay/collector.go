package replay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/peer"
	"github.com/stepvan/stepvan/tensor"
)

// CollectorOptions say which ring a [Collector] packs rows for.
type CollectorOptions struct {
	Name    string       // of the ring
	Learner stepvan.Rank // that has the ring
	Buffer  *Buffer      // with the layout of the ring; the program adds rows to it
	Log     zerolog.Logger
}

// Collector packs rows of its buffer into the slots of a ring, whenever the ring asks for them.
type Collector struct {
	peer   *peer.Peer
	opt    CollectorOptions
	stop   func() // listening
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when the goroutine has ended
	wake   chan struct{} // has room for one: there is an ask

	pieces [4]piece // of the goroutine

	mu   sync.Mutex
	ring uint64 // that it packs for; 0 before it has heard of one
	next *ask   // that was not begun; a later one replaces it
	drop context.CancelCauseFunc
	err  error
}

// piece is rows on their way to a slot.
type piece struct {
	bytes  []byte
	memory tensor.Tensor // bytes, as elements
	put    peer.Handle
	used   bool
}

// pieceBytes is how much is picked before it is put. The next pieces are picked while one is written.
const pieceBytes = 1 << 20

// NewCollector makes a collector. It packs rows until the ring is closed or its learner dies, or until Close.
func NewCollector(p *peer.Peer, o CollectorOptions) (*Collector, error) {
	if err := checkName("collector", o.Name); err != nil {
		return nil, err
	}
	if o.Buffer == nil {
		return nil, errs.Invalid("collector: buffer: it is missing: make one with NewBuffer")
	}
	if o.Learner < 0 || int(o.Learner) >= p.Size() {
		return nil, errs.Invalid("collector: learner: the cluster has no such peer (got %d, want 0 to %d): give its rank", o.Learner, p.Size()-1)
	}
	c := &Collector{peer: p, opt: o, done: make(chan struct{}), wake: make(chan struct{}, 1)}
	for i := range c.pieces {
		x := &c.pieces[i]
		x.bytes = make([]byte, max(pieceBytes/o.Buffer.rowBytes, 1)*o.Buffer.rowBytes)
		var err error
		if x.memory, err = tensor.FromBytes(o.Buffer.layout.DType, tensor.ShapeOf(int64(len(x.bytes))/o.Buffer.layout.RowBytes(), o.Buffer.layout.Width()), x.bytes); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	c.cancel = cancel
	stop, err := p.Listen(topicOf(o.Name, false), c.mailed)
	if err != nil {
		cancel(nil)
		return nil, err
	}
	c.stop = stop
	c.tell((&head{kind: kindJoin}).append(nil))
	go c.run(ctx)
	go c.watch(ctx)
	return c, nil
}

// Done is closed when the collector packs no more.
func (c *Collector) Done() <-chan struct{} { return c.done }

// Err says why it packs no more: nil when the ring was closed or Close was called, and before that.
func (c *Collector) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

var (
	errCollectorClosed = errs.Closed("the collector is closed")
	errReplaced        = errs.Closed("the ring asks for something else")
)

// Close ends the collector, and tells the ring, which has others pack its rows. It waits until nothing is written any
// more. When ctx ends before that, call it again.
func (c *Collector) Close(ctx context.Context) error {
	c.cancel(errCollectorClosed)
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		return errs.Late("close a collector: rows are still being written: close it again", context.Cause(ctx))
	}
}

// mailed takes the mail of the ring. The driver calls it.
func (c *Collector) mailed(from stepvan.Rank, body []byte) {
	h, err := parseHead(body)
	if from != c.opt.Learner || err != nil {
		c.opt.Log.Warn().Err(err).Int("peer", int(from)).Msg("mail for a collector is not of its ring")
		return
	}
	switch h.kind {
	case kindAsk:
		a, err := parseAsk(h, body)
		if err == nil {
			err = c.fits(&a)
		}
		if err != nil {
			c.refuse(h, err)
			return
		}
		c.begin(&a)
	case kindOpen:
		c.know(h.ring)
	case kindEnd: // of an earlier ring, it may have waited here
		if c.knows(h.ring) {
			c.cancel(nil)
		}
	case kindPing:
	default:
		c.refuse(h, errKind(h))
	}
}

// fits refuses an ask for rows of another layout.
func (c *Collector) fits(a *ask) error {
	l := &c.opt.Buffer.layout
	switch {
	case a.picks != picksSplitMix:
		return errs.Invalid("picks: this collector has another generator (got %d, want %d): have the ring pick with splitmix", a.picks, picksSplitMix)
	case a.dtype != l.DType || int64(a.width) != l.Width():
		return errs.Invalid("layout: the rows differ (got %d columns of %v, want %d of %v): give ring and collectors the same layout", a.width, a.dtype, l.Width(), l.DType)
	}
	return nil
}

// know notes which ring there is.
func (c *Collector) know(ring uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ring = ring
}

func (c *Collector) knows(ring uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ring == ring
}

// begin has an ask packed in place of what was asked before.
func (c *Collector) begin(a *ask) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next, c.ring = a, a.ring
	if c.drop != nil {
		c.drop(errReplaced)
	}
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// refuse tells the ring that it gets no rows. A ring that has died needs no answer.
func (c *Collector) refuse(h head, why error) {
	c.tell(appendRefusal(nil, h, why.Error()))
}

func (c *Collector) tell(body []byte) {
	if err := c.peer.Mail(c.opt.Learner, topicOf(c.opt.Name, true), body); err != nil && !errors.Is(err, stepvan.ErrPeerLost) && !errors.Is(err, stepvan.ErrClosed) {
		c.opt.Log.Warn().Err(err).Msg("a collector could not answer its ring")
	}
}

// run packs what the ring asks for.
func (c *Collector) run(ctx context.Context) {
	defer close(c.done)
	defer c.stop()
	for {
		select {
		case <-ctx.Done():
			c.finish(context.Cause(ctx))
			return
		case <-c.wake:
			c.packNext(ctx)
		}
	}
}

// watch ends the collector when the learner has died.
func (c *Collector) watch(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(probeEvery):
			if err := peer.Check(c.peer, c.opt.Learner); err != nil {
				c.cancel(fmt.Errorf("replay: the learner: %w", err))
				return
			}
		}
	}
}

// finish keeps why the collector ends. It tells a ring that lives that this collector packs no more.
func (c *Collector) finish(why error) {
	switch {
	case errors.Is(why, errCollectorClosed):
		c.mu.Lock()
		bye := head{kind: kindLeave, ring: c.ring}
		c.mu.Unlock()
		c.tell(bye.append(nil))
	case !errors.Is(why, context.Canceled):
		c.mu.Lock()
		defer c.mu.Unlock()
		c.err = why
	}
}

// packNext packs the share that was asked for last.
func (c *Collector) packNext(ctx context.Context) {
	ctx, drop := context.WithCancelCause(ctx)
	defer drop(nil)
	c.mu.Lock()
	a := c.next
	c.next, c.drop = nil, drop
	c.mu.Unlock()
	if a == nil {
		return
	}
	err := c.pack(ctx, a)
	c.mu.Lock()
	c.drop = nil
	c.mu.Unlock()
	if err != nil && ctx.Err() == nil && !errors.Is(err, stepvan.ErrStale) { // stale: the ring has given the slot up
		c.refuse(a.head, err)
	}
}

// pack picks the rows of a share and writes them to the slot.
func (c *Collector) pack(ctx context.Context, a *ask) (err error) {
	s, err := c.opt.Buffer.snapshot(ctx, a.least)
	if err != nil {
		return err
	}
	defer s.release()
	defer func() { err = errors.Join(err, c.drain()) }()
	each := uint64(len(c.pieces[0].bytes) / c.opt.Buffer.rowBytes)
	last := a.first + a.rows
	for at, i := a.first, 0; at < last; i++ {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		x := &c.pieces[i%len(c.pieces)]
		if err := x.wait(); err != nil {
			return err
		}
		n := min(each, last-at)
		s.gather(x.bytes[:int(n)*c.opt.Buffer.rowBytes], a.seed, at)
		var body []byte
		if at+n == last { // all else must be there before the note is
			if err := c.drain(); err != nil {
				return err
			}
			answer := note{head: a.head, slot: a.slot, first: a.first, rows: a.rows, written: s.written, held: s.held}
			answer.kind, answer.picks, answer.dtype = kindNote, 0, 0
			body = answer.append(nil)
		}
		if err := x.begin(c.peer, a, at, n, body); err != nil {
			return err
		}
		at += n
	}
	return nil
}

// begin begins to write the first n rows of the piece to a slot, from a row on.
func (x *piece) begin(p *peer.Peer, a *ask, at, n uint64, note []byte) error {
	rows, err := x.memory.Strided().Narrow(0, 0, int64(n))
	if err != nil {
		return err
	}
	x.put, err = p.Put(rows, a.token, []int64{int64(at), 0}, note)
	x.used = err == nil
	return err
}

// wait waits until the memory of the piece is not in use.
func (x *piece) wait() error {
	if !x.used {
		return nil
	}
	err := x.put.Wait(context.Background()) // it ends with the death of the learner or the stop of the node
	x.used = false
	return err
}

// drain waits for all pieces.
func (c *Collector) drain() (err error) {
	for i := range c.pieces {
		err = errors.Join(err, c.pieces[i].wait())
	}
	return err
}
