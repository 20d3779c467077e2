package peer

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/link/progress"
	"github.com/stepvan/stepvan/internal/slots"
	"github.com/stepvan/stepvan/tensor"
)

// Rights say what other peers may do with a [Window].
type Rights = link.Rights

// Rights bits.
const (
	RightWrite = link.RightWrite
	RightRead  = link.RightRead
)

// Window is memory of this peer that others reach by themselves, with [Peer.Get] and [Peer.Put]. The program that
// exposes it takes no part in that.
type Window struct {
	p      *Peer
	id     slots.ID
	view   tensor.Strided
	rights Rights
	peers  []stepvan.Rank // that may use it; nil: all
	note   func(from stepvan.Rank, note []byte)
	key    [16]byte

	// Under Peer.mu.
	attached map[*link.Session]*remote // sessions whose peers may see the memory
	edges    int                       // that are being served
	closed   bool
	changed  progress.Event
}

// WindowOptions say what other peers may do. The zero value lets all peers read it.
type WindowOptions struct {
	Rights Rights         // 0: RightRead
	Peers  []stepvan.Rank // that may use it; empty: all
	// Note is called for the note of each Put, after its elements have come. The goroutine that drives the node calls
	// it: it must not block. note is valid during the call.
	Note func(from stepvan.Rank, note []byte)
}

// Token names a window. Its owner gives it to other peers in any way, by mail for example. It holds 128 random bits, so
// it cannot be guessed. Only the peers that the window admits can use it, and only until the window is closed.
type Token [32]byte

// Layout of a token.
const (
	tokenMagic  = 0x4E574E54 // "TNWN"
	tokenRank   = 4
	tokenWindow = 8
	tokenKey    = 16
)

// owner is the rank of the peer that has exposed the window.
func (t *Token) owner() stepvan.Rank {
	return stepvan.Rank(int32(binary.LittleEndian.Uint32(t[tokenRank:])))
}

// window is the number of the window at its owner.
func (t *Token) window() slots.ID { return slots.ID(binary.LittleEndian.Uint64(t[tokenWindow:])) }

// check refuses what is not a token.
func (t *Token) check(op string) error {
	if binary.LittleEndian.Uint32(t[:]) != tokenMagic {
		return errs.Invalid("%s: token: it is not the token of a window: pass on all bytes of Window.Token", op)
	}
	return nil
}

// windowSlot is what the table of windows keeps.
type windowSlot struct{ window *Window }

// Expose lets other peers reach a view. The memory is borrowed until Close has returned nil.
func (p *Peer) Expose(v tensor.Strided, o WindowOptions) (*Window, error) {
	if o.Rights == 0 {
		o.Rights = RightRead
	}
	if o.Rights&^(RightRead|RightWrite) != 0 {
		return nil, errs.Invalid("expose: rights: unknown bits (got %#x): use RightRead and RightWrite", uint8(o.Rights))
	}
	check := checkSource
	if o.Rights&RightWrite != 0 {
		check = checkDestination
	}
	if err := check(&v); err != nil {
		return nil, fmt.Errorf("expose: %w", err)
	}
	w := &Window{p: p, view: v, rights: o.Rights, peers: slices.Clone(o.Peers), note: o.Note, attached: map[*link.Session]*remote{}}
	_, _ = rand.Read(w.key[:])
	if err := v.Retain(); err != nil {
		return nil, fmt.Errorf("expose: %w", err)
	}
	p.mu.Lock()
	defer p.unlock()
	if p.over != nil {
		v.Release()
		return nil, errs.Ended("expose", p.over)
	}
	var slot *windowSlot
	w.id, slot = p.windows.own.Take()
	slot.window = w
	return w, nil
}

// Token returns what names the window to other peers.
func (w *Window) Token() (t Token) {
	binary.LittleEndian.PutUint32(t[:], tokenMagic)
	binary.LittleEndian.PutUint32(t[tokenRank:], uint32(w.p.Rank()))
	binary.LittleEndian.PutUint64(t[tokenWindow:], uint64(w.id))
	copy(t[tokenKey:], w.key[:])
	return t
}

// Close ends the window. Operations that name it fail from here on with [stepvan.ErrStale]. Close waits until no peer
// reaches the memory. When ctx ends before that, call it again.
func (w *Window) Close(ctx context.Context) error {
	p := w.p
	p.mu.Lock()
	if !w.closed {
		w.closed = true
		for s, r := range w.attached {
			if r.session == s {
				r.note(opRevoke, uint64(w.id))
			}
		}
	}
	w.checkQuiet()
	p.unlock()
	if err := p.link.Engine().Wait(ctx, &w.changed); err != nil && ctx.Err() != nil {
		return &stepvan.OpError{Op: "close a window", Err: errs.Late("peers still reach its memory: close it again", ctx.Err())}
	}
	p.mu.Lock()
	defer p.unlock()
	if p.windows.own.Free(w.id) {
		w.view.Release()
	}
	return nil
}

// checkQuiet wakes Close when no peer reaches the memory. Under Peer.mu.
func (w *Window) checkQuiet() {
	if w.closed && len(w.attached) == 0 && w.edges == 0 {
		w.p.link.Engine().Set(&w.changed)
	}
}

// admits says why a peer may not use the window with some rights, or nil.
func (w *Window) admits(r *remote, key []byte, rights Rights) error {
	switch {
	case subtle.ConstantTimeCompare(w.key[:], key) == 0:
		return errNoWindow
	case len(w.peers) > 0 && !slices.Contains(w.peers, r.Rank):
		return fmt.Errorf("the window does not admit peer %d", r.Rank)
	case rights&^w.rights != 0:
		return fmt.Errorf("the window may only be read")
	}
	return nil
}

var errNoWindow = fmt.Errorf("there is no such window, or it was closed: %w", stepvan.ErrStale)

// windowTable has the windows of this peer, and the windows of others that it uses. Peer.mu guards it.
type windowTable struct {
	p      *Peer
	own    slots.Table[windowSlot]
	others map[Token]*attachment
	ids    slots.Table[attachmentSlot]
}

// find returns the window that a peer may use with some rights.
func (t *windowTable) find(r *remote, id slots.ID, key []byte, rights Rights) (*Window, error) {
	if t.p.over != nil {
		return nil, t.p.over
	}
	slot := t.own.Find(id)
	if slot == nil || slot.window.closed {
		return nil, errNoWindow
	}
	return slot.window, slot.window.admits(r, key, rights)
}

// box returns the part of the window that begins at some element and has the shape of f.
func (w *Window) box(at []int64, f *form) (tensor.Strided, error) {
	return boxOf(w.view, at, f.dims[:f.rank])
}

// boxOf returns the part of a view that begins at some element and has these extents. Without at it begins at the first
// element.
func boxOf(v tensor.Strided, at, dims []int64) (tensor.Strided, error) {
	if len(dims) != len(v.Dims()) || len(at) != 0 && len(at) != len(dims) {
		return v, errs.Invalid("a box with extents %v at %v is not a part of the window %s: give as many dimensions", dims, at, v)
	}
	for i, n := range dims {
		lo := int64(0)
		if len(at) > 0 {
			lo = at[i]
		}
		part, err := v.Narrow(i, lo, n)
		if err != nil {
			return v, fmt.Errorf("the window: %w", err)
		}
		v = part
	}
	return v, nil
}

// attach answers a peer that wants to use a window.
func (t *windowTable) attach(r *remote, m *link.Inbound) error {
	d := decode(m.Meta)
	id, rights, key := slots.ID(d.u64()), Rights(d.u8()), d.take(len(Token{})-tokenKey)
	if err := d.end(); err != nil {
		return err
	}
	w, err := t.find(r, id, key, rights)
	if err != nil {
		a := r.message(opDetach, m.Header.Request)
		a.meta = appendReason(a.meta, err)
		r.send(a)
		return nil
	}
	f := formOf(&w.view)
	if f.place = r.reach(&w.view, w.rights); !f.place.IsZero() {
		w.attached[r.session] = r
	}
	a := r.message(opAttached, m.Header.Request)
	a.meta = append(a.meta, byte(w.rights))
	a.meta = f.append(a.meta)
	r.send(a)
	return nil
}

// released handles the answer to opRevoke: the peer does not reach the window any more.
func (t *windowTable) released(r *remote, m *link.Inbound) error {
	slot := t.own.Find(slots.ID(m.Header.Request))
	if slot == nil || !slot.window.closed {
		return errs.Protocol("request", 56, "a peer gives up window %#x, which was not withdrawn", m.Header.Request)
	}
	delete(slot.window.attached, r.session)
	slot.window.checkQuiet()
	return nil
}

// detached says that the peer of s reaches nothing any more.
func (t *windowTable) detached(s *link.Session) {
	for _, slot := range t.own.All() {
		delete(slot.window.attached, s)
		slot.window.checkQuiet()
	}
}

// noted handles the note of a Put.
func (t *windowTable) noted(r *remote, m *link.Inbound) error {
	if len(m.Meta) != len(Token{})-tokenKey || m.Header.Total > MaxMail {
		return errs.Protocol("meta", 76, "a note of %d bytes with a key of %d", m.Header.Total, len(m.Meta))
	}
	w, err := t.find(r, slots.ID(m.Header.Request), m.Meta, RightWrite)
	if err != nil || w.note == nil {
		return nil // it was closed meanwhile, or does not ask for notes
	}
	t.p.mu.Unlock()
	defer t.p.mu.Lock()
	w.note(r.Rank, m.Payload)
	return nil
}

// serving is what a peer reads from a window, or writes to it, where it does not see the memory.
type serving struct {
	edge   edge
	window *Window
}

// serve begins to send a part of a window, or to receive one.
func (t *windowTable) serve(r *remote, m *link.Inbound, put bool) error {
	d := decode(m.Meta)
	theirs, key := d.u64(), d.take(len(Token{})-tokenKey)
	f := d.form()
	var at [tensor.MaxRank]int64
	for i := range f.rank {
		at[i] = int64(d.uvarint())
	}
	if err := d.end(); err != nil {
		return err
	}
	rights := RightRead
	if put {
		rights = RightWrite
	}
	w, err := t.find(r, slots.ID(m.Header.Request), key, rights)
	if err == nil {
		err = w.serve(r, theirs, at[:f.rank], &f, put)
	}
	if err != nil {
		r.refuse(theirs, err)
	}
	return nil
}

// refuse fails an operation of a peer that has begun nothing here.
func (r *remote) refuse(theirs uint64, why error) {
	m := r.message(opFail, theirs)
	m.meta = binary.LittleEndian.AppendUint64(m.meta, 0)
	m.meta = appendReason(append(m.meta, 0), why)
	r.send(m)
}

// serve begins one operation of a peer.
func (w *Window) serve(r *remote, theirs uint64, at []int64, f *form, put bool) error {
	if w.edges >= w.p.opt.Outstanding {
		return fmt.Errorf("%d operations on the window have not completed: wait for some: %w", w.edges, stepvan.ErrWouldBlock)
	}
	box, err := w.box(at, f)
	if err != nil {
		return err
	}
	mine := formOf(&box)
	if f.dtype != mine.dtype {
		return fmt.Errorf("the type differs (got %s, want %s): %w", f.dtype, mine.dtype, stepvan.ErrInvalid)
	}
	src, dst := &mine, f
	if put {
		src, dst = f, &mine
	}
	walk, err := route(src, dst)
	if err != nil {
		return err
	}
	x := &serving{window: w}
	e := &x.edge
	e.remote, e.out, e.owner = r, !put, x
	e.open()
	e.theirs = theirs
	e.streamed.add(&walk, address(&box), nil)
	w.edges++
	if put {
		m := r.message(opServe, theirs)
		m.meta = binary.LittleEndian.AppendUint64(m.meta, uint64(e.id))
		r.send(m)
	}
	e.begin()
	return nil
}

// arrived implements edgeOwner.
func (x *serving) arrived(e *edge) { x.quiet(e) }

// failed implements edgeOwner.
func (x *serving) failed(*edge, error) {}

// quiet implements edgeOwner.
func (x *serving) quiet(e *edge) {
	e.close()
	x.window.edges--
	x.window.checkQuiet()
}
