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

	filler *filler // of the goroutine
	body   []byte  // of the note, of the goroutine

	mu   sync.Mutex
	ring uint64 // that it packs for; 0 before it has heard of one
	next *ask   // that was not begun; a later one replaces it
	drop context.CancelCauseFunc
	err  error
}

// pieceBytes bounds how much is put at once. Between two pieces the collector looks whether it is still wanted.
const pieceBytes = 64 << 20

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
	c := &Collector{peer: p, opt: o, done: make(chan struct{}), wake: make(chan struct{}, 1), filler: &filler{}}
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

// pack writes the rows of a share to the slot. The last Put has the note, so all other rows are there before it.
func (c *Collector) pack(ctx context.Context, a *ask) error {
	s, err := c.opt.Buffer.snapshot(ctx, a.least)
	if err != nil {
		return err
	}
	if !c.filler.isFree() { // a connection was lost, and package peer is not done with it
		c.filler = &filler{}
	}
	c.filler.open(s, a)
	defer c.filler.Free()
	each := max(uint64(pieceBytes/c.opt.Buffer.rowBytes), 1)
	for at, last := a.first, a.first+a.rows; at < last; {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		n := min(each, last-at)
		var note []byte
		if at+n == last {
			note = c.noteOf(a, &s)
		}
		if err := c.put(a, at, n, note); err != nil {
			return err
		}
		at += n
	}
	return nil
}

// put writes n rows to the slot, from a row on. It ends with the death of the learner or the stop of the node.
func (c *Collector) put(a *ask, at, n uint64, note []byte) error {
	l := &c.opt.Buffer.layout
	c.filler.first = at
	c.filler.users.Add(1)
	h, err := c.peer.Library().PutMade(c.filler, l.DType, []int64{int64(n), l.Width()}, a.token, []int64{int64(at), 0}, note)
	if err != nil {
		c.filler.Free()
		return err
	}
	return h.Wait(context.Background())
}

// noteOf says that the rows of a share are whole.
func (c *Collector) noteOf(a *ask, s *snapshot) []byte {
	answer := note{head: a.head, slot: a.slot, first: a.first, rows: a.rows, written: s.written, held: s.held}
	answer.kind, answer.picks, answer.dtype = kindNote, 0, 0
	c.body = answer.append(c.body[:0])
	return c.body
}
