package server

import (
	"errors"
	"fmt"
	"sync"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/tensor"
)

// view is memory of a worker, from the request that names it until the respond, or until the last
// operation that holds the tensor has ended.
type view struct {
	window *tensor.Window
	link   link.View
}

// views keeps those that are not in use.
type views struct {
	mu   sync.Mutex
	free []*view
}

func (q *views) take() *view {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := len(q.free); n > 0 {
		v := q.free[n-1]
		q.free = q.free[:n-1]
		return v
	}
	v := new(view)
	v.window = tensor.NewWindow(func() { q.give(v) })
	return v
}

func (q *views) give(v *view) {
	v.link.Release()
	v.link = link.View{}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.free = append(q.free, v)
}

// look makes the tensor that d names in the worker's memory. 0 allocations in the steady state.
func (s *Server) look(session *link.Session, d *wire.Descriptor, rights link.Rights) (*view, tensor.Tensor, error) {
	m, err := session.Map(link.TargetOf(d), int64(d.Bytes), rights)
	if err != nil {
		return nil, tensor.Tensor{}, err
	}
	v := s.views.take()
	v.link = m
	t, err := tensor.FromRegion(v.window.Show(m.Bytes), 0, d.DType, d.Shape)
	if err != nil {
		v.window.Shut()
		return nil, tensor.Tensor{}, err
	}
	return v, t, nil
}

// readInPlace returns push i of a request that left it in the worker's memory.
func (s *Server) readInPlace(in *incoming, d *wire.Descriptor) (tensor.Tensor, error) {
	v, t, err := s.look(in.session, d, link.RightRead)
	switch {
	case err == nil:
		in.views = append(in.views, v)
		return t, nil
	case !in.session.OneSided(), errors.Is(err, stepvan.ErrStale), errors.Is(err, stepvan.ErrInvalid):
		return t, &stepvan.ProtocolError{Field: "region", Reason: fmt.Sprintf("the push of key %d is said to be in memory that was not granted: %v", d.Key, err)}
	}
	return t, fmt.Errorf("server %d cannot see the memory of %s: %w", s.rank, in.from.name, err)
}

// out is where the answer to one pull can be written. Guarded by incoming.outMu.
type out struct {
	made   bool
	tensor tensor.Tensor
	view   *view          // of the worker's pull tensor; nil when it cannot be reached
	region *tensor.Region // pooled memory instead
}

// owned are copies of what a worker has left in its memory, for a program that may write to them. Guarded by
// incoming.outMu.
type owned struct {
	tensors []tensor.Tensor // of all pushes; empty before they are asked for
	region  *tensor.Region  // holds the copies; nil when the pool had no room
}

// owned returns the pushes in memory of this process. 0 allocations in the steady state.
func (r Request) owned() []tensor.Tensor {
	if !r.visit() {
		return nil
	}
	in := r.in
	defer in.outMu.Unlock()
	if len(in.owned.tensors) == 0 {
		in.own()
	}
	return in.owned.tensors
}

// own copies the pushes that are views. Under outMu.
func (in *incoming) own() {
	var total int64
	for i := range in.pushes {
		if in.left(i) {
			total += roundUp(int64(in.pushes[i].Len()))
		}
	}
	r, _ := in.server.opt.Memory.Get(int(total)) // nil when it is full
	in.owned.region = r
	var at int64
	for i := range in.pushes {
		t := in.pushes[i]
		if in.left(i) {
			t = copied(&t, r, at)
			at += roundUp(int64(t.Len()))
		}
		in.owned.tensors = append(in.owned.tensors, t)
	}
}

// left reports whether the worker has left push i where it was.
func (in *incoming) left(i int) bool {
	d := &in.meta.Pushes[i]
	return d.Flags&wire.DescInPlace != 0 && d.Bytes > 0
}

// copied copies t to offset at of r, or to the heap.
func copied(t *tensor.Tensor, r *tensor.Region, at int64) tensor.Tensor {
	var c tensor.Tensor
	var err error
	if r != nil {
		c, err = tensor.FromRegion(r, at, t.DType(), t.Shape())
	} else {
		c, err = tensor.FromBytes(t.DType(), t.Shape(), make([]byte, t.Len()))
	}
	if err == nil { // both are aligned for every type
		copy(c.Bytes(), t.Bytes())
	}
	return c
}

// In returns push i to be read: the worker's own tensor, without a copy, where it was left there, else what
// Pushes has. Whether it shows what the program writes to Pushes depends on that. Errors:
// stepvan.ErrInvalid when there is no such push; stepvan.ErrStale after the respond.
//
// The tensor must not be written to: a view of the worker's memory may be mapped for reading only, and a write to that ends
// the process. It ends with the Respond to Handler: from then on a view is stepvan.ErrClosed or
// stepvan.ErrStale. A slice that was taken from it before (Bytes) must not be used any more,
// which nothing can enforce. While the respond is outstanding it is valid, even when the
// worker is lost. Any goroutine, at any time: also beside the respond, and after it.
func (r Request) In(i int) (tensor.Tensor, error) {
	if !r.visit() {
		return tensor.Tensor{}, errEnded
	}
	defer r.in.outMu.Unlock()
	if i < 0 || i >= len(r.in.pushes) {
		return tensor.Tensor{}, errs.Invalid("in: push %d of %d", i, len(r.in.pushes))
	}
	return r.in.pushes[i], nil
}

// InPlace reports whether In gives the worker's own tensor for push i; else it gives memory of this process, which may be
// written to as Pushes may. False also when there is no such push, or the request was answered. Who may call
// is said of PushKeys. 0 allocations.
func (r Request) InPlace(i int) bool {
	return r.live() && i >= 0 && i < len(r.in.pushes) && r.in.left(i)
}

// visit keeps the request as it is, until the caller unlocks outMu; false when it was answered, or never given.
func (r Request) visit() bool {
	if r.in == nil {
		return false
	}
	r.in.outMu.Lock()
	r.in.visited.Store(true)
	if !r.live() {
		r.in.outMu.Unlock()
		return false
	}
	return true
}

// Out returns memory for the answer to pull i, with type and shape of the pull: the worker's own tensor
// where it can be reached, else pooled memory. It holds anything at first. Given to Respond as the
// answer to pull i, whole or, for a Variable pull, its first bytes, what is in the worker's
// memory is not sent. It answers no other pull of the request. The same tensor is returned each time.
//
// It may be written and read. What In says of its lifetime holds here too. Errors: stepvan.ErrInvalid when there is no
// such pull; stepvan.ErrStale after the respond; stepvan.ErrWouldBlock when the pool is full. Any goroutine.
func (r Request) Out(i int) (tensor.Tensor, error) {
	if !r.visit() {
		return tensor.Tensor{}, errEnded
	}
	defer r.in.outMu.Unlock()
	if i < 0 || i >= len(r.in.pulls) {
		return tensor.Tensor{}, errs.Invalid("out: pull %d of %d", i, len(r.in.pulls))
	}
	r.in.makeOuts()
	return r.in.out(i)
}

var errEnded = fmt.Errorf("the request was answered, or never given: %w", stepvan.ErrStale)

// out makes memory for the answer to pull i. Under outMu.
func (in *incoming) out(i int) (tensor.Tensor, error) {
	o := &in.outs[i]
	if o.made {
		return o.tensor, nil
	}
	err := o.make(in, &in.meta.Pulls[i])
	return o.tensor, err
}

func (o *out) make(in *incoming, d *wire.Descriptor) (err error) {
	if d.Bytes == 0 {
		o.tensor, err = tensor.FromBytes(d.DType, d.Shape, nil)
		o.made = err == nil
		return err
	}
	if o.look(in, d) {
		return nil
	}
	pool := in.server.opt.Memory
	r, err := pool.Get(int(d.Bytes))
	if err != nil {
		return fmt.Errorf("out: no memory for the answer to the pull of key %d: %w", d.Key, err)
	}
	if o.tensor, err = tensor.FromRegion(r, 0, d.DType, d.Shape); err != nil {
		pool.Put(r)
		return err
	}
	o.region, o.made = r, true
	return nil
}

// look takes the worker's own tensor, and reports whether it can be reached.
func (o *out) look(in *incoming, d *wire.Descriptor) bool {
	if d.Region == 0 || !in.session.OneSided() {
		return false
	}
	v, t, err := in.server.look(in.session, d, link.RightRead|link.RightWrite)
	if err == nil {
		o.tensor, o.view, o.made = t, v, true
	}
	return err == nil
}

// reach returns the worker's memory for the answer to pull i, nil where it cannot be reached. By the one who answers.
func (in *incoming) reach(i int) []byte {
	d := &in.meta.Pulls[i]
	if d.Region == 0 || d.Bytes == 0 || !in.session.OneSided() {
		return nil
	}
	in.outMu.Lock()
	defer in.outMu.Unlock()
	in.visited.Store(true)
	in.makeOuts()
	o := &in.outs[i]
	if o.view == nil && (o.made || !o.look(in, d)) {
		return nil
	}
	return o.tensor.Bytes()
}

// makeOuts makes the list of where answers can be written. Under outMu.
func (in *incoming) makeOuts() {
	for len(in.outs) < len(in.pulls) {
		in.outs = append(in.outs, out{})
	}
}

// offered reports whether t, the answer to pull i, is in the worker's memory already.
func (in *incoming) offered(i int, t *tensor.Tensor) (bool, error) {
	r := t.Region()
	if r == nil || !in.visited.Load() {
		return false, nil
	}
	in.outMu.Lock()
	defer in.outMu.Unlock()
	for j := range in.outs {
		o := &in.outs[j]
		if !o.made || o.tensor.Region() != r {
			continue
		}
		if j != i || t.Offset() != 0 {
			return false, errs.Invalid("respond: Out(%d) from byte %d on for pull %d; it answers pull %d, from its first byte on; copy it", j, t.Offset(), i, j)
		}
		return o.view != nil, nil
	}
	return false, nil
}

// closeViews ends what the request has seen of its worker's memory. Under s.mu.
func (in *incoming) closeViews() {
	for i, v := range in.views {
		v.window.Shut()
		in.views[i] = nil
	}
	in.views = in.views[:0]
	if !in.visited.Load() {
		return
	}
	in.outMu.Lock()
	defer in.outMu.Unlock()
	in.visited.Store(false)
	for i := range in.outs {
		o := &in.outs[i]
		switch {
		case o.view != nil:
			o.view.window.Shut()
		case o.region != nil:
			in.server.opt.Memory.Put(o.region)
		}
		*o = out{}
	}
	in.outs = in.outs[:0]
	if in.owned.region != nil {
		in.server.opt.Memory.Put(in.owned.region)
	}
	clear(in.owned.tensors)
	in.owned = owned{tensors: in.owned.tensors[:0]}
}
