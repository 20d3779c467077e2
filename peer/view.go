package peer

import (
	"fmt"
	"unsafe"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/tensor"
)

// View is a window of another peer as this process sees it.
type View struct {
	p      *Peer
	to     *attachment // nil: it is not seen, or was closed. Under Peer.mu
	view   tensor.Strided
	mapped bool
	closed bool // Under Peer.mu
}

// View maps a window of another peer. The handle completes when the owner has answered. Then [View.Strided] tells
// whether this process sees the window. Close the view in any case. [Peer.Get] lists the errors.
func (l Library) View(t Token) (*View, Handle, error) {
	const op = "view"
	if err := t.check(op); err != nil {
		return nil, Handle{}, err
	}
	p := l.p
	p.mu.Lock()
	defer p.unlock()
	r, err := p.find(op, t.owner())
	if err == nil {
		err = r.stock.checkRoom(op)
	}
	if err == nil && r.self() {
		err = errs.Invalid("view: token: the window is of this peer: use its memory")
	}
	if err != nil {
		return nil, Handle{}, err
	}
	x := p.spares.accesses.Take()
	x.record, x.look = p.start(op, r), &View{p: p}
	v := x.look
	x.edge.remote = r
	r.stock.outstanding++
	h := p.handle(x.record)
	p.windows.attachment(r, t).begin(x)
	return v, h, nil
}

// see completes a View once the owner has answered. Under Peer.mu.
func (a *attachment) see(x *access) {
	v := x.look
	if a.mapped && !v.closed {
		f := &a.form
		shape, err := tensor.MakeShape(f.dims[:f.rank]...)
		if err == nil {
			v.view, err = tensor.StridedFrom(unsafe.Pointer(unsafe.SliceData(a.view.Bytes)), f.dtype, shape, f.strides[:f.rank], nil)
		}
		if err != nil {
			x.finish(fmt.Errorf("view: %w", err))
			x.recycle()
			return
		}
		a.using++
		v.to, v.mapped = a, true
	}
	x.finish(nil)
	x.recycle()
}

// Strided is the window, when the handle has completed. It may only be read, and only until Close. ok is false where
// this process does not see it: use [Peer.Get].
func (v *View) Strided() (s tensor.Strided, ok bool) {
	v.p.mu.Lock()
	defer v.p.unlock()
	return v.view, v.mapped
}

// Close ends the view. A second call does nothing.
func (v *View) Close() {
	v.p.mu.Lock()
	defer v.p.unlock()
	v.closed = true
	if a := v.to; a != nil {
		v.to, v.mapped = nil, false
		a.using--
		a.checkUnused()
	}
}
