package server

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/reuse"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/tensor"
)

// workerView is memory of a worker that this process sees. It lasts until the respond to the request that names it, or
// until the last operation that holds the tensor has ended.
type workerView struct {
	window *tensor.Window
	link   link.View
}

// viewPool keeps the views that are not in use.
type viewPool struct {
	mu sync.Mutex
	// +checklocks:mu
	list reuse.List[workerView]
}

func (p *viewPool) take() *workerView {
	p.mu.Lock()
	defer p.mu.Unlock()
	v := p.list.Take()
	if v.window == nil {
		v.window = tensor.NewWindow(func() { p.put(v) })
	}
	return v
}

func (p *viewPool) put(v *workerView) {
	v.link.Release()
	v.link = link.View{}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list.Put(v)
}

// view makes the tensor that d names in the worker's memory. 0 allocations in the steady state.
func (r *requestSlot) view(d *wire.Descriptor, rights link.Rights) (*workerView, tensor.Tensor, error) {
	m, err := r.session.Map(link.TargetOf(d), int64(d.Bytes), rights)
	if err != nil {
		return nil, tensor.Tensor{}, err
	}
	v := r.server.views.take()
	v.link = m
	t, err := tensor.FromRegion(v.window.Show(m.Bytes), 0, d.DType, d.Shape)
	if err != nil {
		v.window.Shut()
		return nil, tensor.Tensor{}, err
	}
	return v, t, nil
}

// viewPush returns a push that the worker has left in its memory.
func (r *requestSlot) viewPush(d *wire.Descriptor) (tensor.Tensor, error) {
	v, t, err := r.view(d, link.RightRead)
	switch {
	case err == nil:
		r.views = append(r.views, v)
		return t, nil
	case !r.session.Caps().Views, errors.Is(err, stepvan.ErrStale), errors.Is(err, stepvan.ErrInvalid):
		return t, &stepvan.ProtocolError{Field: "region", Reason: fmt.Sprintf("the push of key %d is said to be in memory that was not granted: %v", d.Key, err)}
	}
	return t, fmt.Errorf("server %d: it cannot see the memory of %s: %w", r.server.rank, r.from.name, err)
}

// handedMemory is what a program has asked for since the request was handed out.
type handedMemory struct {
	// The program sets used before it checks whether the request is live. So a request whose program asked for nothing
	// ends without the lock.
	used   atomic.Bool
	mu     sync.Mutex      // never held during a wait; taken after Server.mu
	outs   []out           // one per pull; empty before the first use
	pushes []tensor.Tensor // copies of the pushes in the worker's memory, and the other pushes; empty before the first use
	region *tensor.Region  // holds the copies; nil when the pool had no room
}

// out is memory for the answer to one pull. Guarded by handedMemory.mu.
type out struct {
	made   bool
	tensor tensor.Tensor
	view   *workerView    // of the worker's pull tensor; nil when the server cannot reach it
	region *tensor.Region // pooled memory instead
}

// keepLive reports whether the request is live, which lasts until the caller unlocks handedMemory.mu. Under that.
func (r Request) keepLive() bool {
	r.slot.handed.used.Store(true)
	return r.live()
}

// copiedPushes returns the pushes in memory of this process. 0 allocations in the steady state.
func (r Request) copiedPushes() []tensor.Tensor {
	h := &r.slot.handed
	h.mu.Lock()
	defer h.mu.Unlock()
	if !r.keepLive() {
		return nil
	}
	if len(h.pushes) == 0 {
		r.slot.copyPushes()
	}
	return h.pushes
}

// copyPushes copies the pushes that are views. Under handedMemory.mu.
func (r *requestSlot) copyPushes() {
	var total int64
	for i := range r.pushes {
		if r.inPlace(i) {
			total += alignUp(int64(r.pushes[i].Len()))
		}
	}
	region, _ := r.server.opt.Memory.Get(int(total)) // nil when the pool is full
	r.handed.region = region
	var at int64
	for i := range r.pushes {
		t := r.pushes[i]
		if r.inPlace(i) {
			t = copyTensor(&t, region, at)
			at += alignUp(int64(t.Len()))
		}
		r.handed.pushes = append(r.handed.pushes, t)
	}
}

// inPlace reports whether the worker has left push i in its memory.
func (r *requestSlot) inPlace(i int) bool {
	d := &r.meta.Pushes[i]
	return d.Flags&wire.DescInPlace != 0 && d.Bytes > 0
}

// copyTensor copies t to offset at of region, or to the heap where region is nil.
func copyTensor(t *tensor.Tensor, region *tensor.Region, at int64) tensor.Tensor {
	var c tensor.Tensor
	var err error
	if region != nil {
		c, err = tensor.FromRegion(region, at, t.DType(), t.Shape())
	} else {
		c, err = tensor.FromBytes(t.DType(), t.Shape(), make([]byte, t.Len()))
	}
	if err == nil { // both are aligned for every type
		copy(c.Bytes(), t.Bytes())
	}
	return c
}

var errAnswered = fmt.Errorf("the request was answered, or never given: %w", stepvan.ErrStale)

// In returns push i for reading. Where the worker has left the push in its own memory, the tensor is that memory,
// without a copy. Else it is the tensor of [Request.Pushes]. So a write to Pushes may show in In or not. Errors:
// stepvan.ErrInvalid when there is no such push; stepvan.ErrStale after the respond.
//
// The program must not write to the tensor. A view of the worker's memory may be mapped read-only, and a write to it
// ends the process. The tensor ends with the Respond to ID: from then on a view returns stepvan.ErrClosed or
// stepvan.ErrStale. A slice that was taken from it before (Bytes) must not be used any more, which nothing can enforce.
// Before the respond the tensor stays valid even when the worker is lost. Any goroutine may call In at any time, also
// during and after the respond.
func (r Request) In(i int) (tensor.Tensor, error) {
	if r.slot == nil {
		return tensor.Tensor{}, errAnswered
	}
	h := &r.slot.handed
	h.mu.Lock()
	defer h.mu.Unlock()
	if !r.keepLive() {
		return tensor.Tensor{}, errAnswered
	}
	if i < 0 || i >= len(r.slot.pushes) {
		return tensor.Tensor{}, errs.Invalid("in: the request has no such push (got %d, want less than %d)", i, len(r.slot.pushes))
	}
	return r.slot.pushes[i], nil
}

// InPlace reports whether In returns the worker's own tensor for push i. Else In returns memory of this process, to
// which the program may write as to Pushes. It is false also when there is no such push, or after the respond. The
// rules of [Request] for PushKeys say which goroutines may call it. 0 allocations.
func (r Request) InPlace(i int) bool {
	return r.live() && i >= 0 && i < len(r.slot.pushes) && r.slot.inPlace(i)
}

// Out returns memory for the answer to pull i, with type and shape of the pull. It is the worker's own tensor where the
// server can reach it, else pooled memory. It holds arbitrary bytes at first. Given to Respond as the answer to pull i,
// memory of the worker is not sent. A Variable pull may be answered with its first bytes alone. The tensor answers no
// other pull of the request. Every call returns the same tensor.
//
// The program may read and write the tensor, which lives as long as that of [Request.In]. Errors: stepvan.ErrInvalid
// when there is no such pull; stepvan.ErrStale after the respond; stepvan.ErrWouldBlock when the pool is full. Any
// goroutine.
func (r Request) Out(i int) (tensor.Tensor, error) {
	if r.slot == nil {
		return tensor.Tensor{}, errAnswered
	}
	h := &r.slot.handed
	h.mu.Lock()
	defer h.mu.Unlock()
	if !r.keepLive() {
		return tensor.Tensor{}, errAnswered
	}
	if i < 0 || i >= len(r.slot.pulls) {
		return tensor.Tensor{}, errs.Invalid("out: the request has no such pull (got %d, want less than %d)", i, len(r.slot.pulls))
	}
	o := r.slot.outOf(i)
	if o.made {
		return o.tensor, nil
	}
	err := o.make(r.slot, &r.slot.meta.Pulls[i])
	return o.tensor, err
}

// outOf returns the entry of pull i. Under handedMemory.mu.
func (r *requestSlot) outOf(i int) *out {
	for len(r.handed.outs) < len(r.pulls) {
		r.handed.outs = append(r.handed.outs, out{})
	}
	return &r.handed.outs[i]
}

// make finds memory for the answer to the pull d.
func (o *out) make(r *requestSlot, d *wire.Descriptor) (err error) {
	if d.Bytes == 0 {
		o.tensor, err = tensor.FromBytes(d.DType, d.Shape, nil)
		o.made = err == nil
		return err
	}
	if o.viewPull(r, d) {
		return nil
	}
	pool := r.server.opt.Memory
	region, err := pool.Get(int(d.Bytes))
	if err != nil {
		return fmt.Errorf("out: no memory for the answer to the pull of key %d: %w", d.Key, err)
	}
	if o.tensor, err = tensor.FromRegion(region, 0, d.DType, d.Shape); err != nil {
		pool.Put(region)
		return err
	}
	o.region, o.made = region, true
	return nil
}

// viewPull takes the worker's own tensor. It reports false when the server cannot reach it.
func (o *out) viewPull(r *requestSlot, d *wire.Descriptor) bool {
	if d.Region == 0 || !r.session.Caps().Views {
		return false
	}
	v, t, err := r.view(d, link.RightRead|link.RightWrite)
	if err == nil {
		o.tensor, o.view, o.made = t, v, true
	}
	return err == nil
}

// pullMemory returns the worker's memory for the answer to pull i, or nil where the server cannot reach it. Only the
// Respond that answers the request calls it.
func (r *requestSlot) pullMemory(i int) []byte {
	d := &r.meta.Pulls[i]
	if d.Region == 0 || d.Bytes == 0 || !r.session.Caps().Views {
		return nil
	}
	r.handed.mu.Lock()
	defer r.handed.mu.Unlock()
	r.handed.used.Store(true)
	o := r.outOf(i)
	if o.view == nil && (o.made || !o.viewPull(r, d)) {
		return nil
	}
	return o.tensor.Bytes()
}

// isInPlace reports whether t, the answer to pull i, is in the worker's memory already. It refuses an Out of another
// pull.
func (r *requestSlot) isInPlace(i int, t *tensor.Tensor) (bool, error) {
	region := t.Region()
	if region == nil || !r.handed.used.Load() {
		return false, nil
	}
	r.handed.mu.Lock()
	defer r.handed.mu.Unlock()
	for j := range r.handed.outs {
		o := &r.handed.outs[j]
		if !o.made || o.tensor.Region() != region {
			continue
		}
		if j != i || t.Offset() != 0 {
			return false, errs.Invalid("respond: the tensor for pull %d: it is Out(%d) from byte %d on, which answers pull %d, from its first byte on: copy it", i, j, t.Offset(), j)
		}
		return o.view != nil, nil
	}
	return false, nil
}

// closeViews ends what the program sees of the worker's memory, and the copies. Under Server.mu.
func (r *requestSlot) closeViews() {
	for i, v := range r.views {
		v.window.Shut()
		r.views[i] = nil
	}
	r.views = r.views[:0]
	if !r.handed.used.Load() {
		return
	}
	h := &r.handed
	h.mu.Lock()
	defer h.mu.Unlock()
	h.used.Store(false)
	pool := r.server.opt.Memory
	for i := range h.outs {
		o := &h.outs[i]
		switch {
		case o.view != nil:
			o.view.window.Shut()
		case o.region != nil:
			pool.Put(o.region)
		}
		*o = out{}
	}
	if h.region != nil {
		pool.Put(h.region)
	}
	clear(h.pushes)
	h.outs, h.pushes, h.region = h.outs[:0], h.pushes[:0], nil
}
