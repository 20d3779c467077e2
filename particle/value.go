package particle

import (
	"slices"
	"sync/atomic"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/tensor"
)

// Value is what a call or its result carries: bytes that this package does not read, and tensors in memory of the host
// beside them.
//
// As an argument of this package, a value is copied before the function returns. As an argument of a hook it is valid
// until the hook returns, and as a result until [Future.Forget]. A program may write to tensors that it gets, unless
// the value is a View.
type Value struct {
	Data    []byte
	Tensors []tensor.Strided // at most MaxTensors
	Pickled bool             // the bytes are for a decoder that runs code
	View    bool             // of a result: the tensors belong to a particle
	// Lent has the tensors used where they are. Nobody writes to them until Lent is called, once, from any goroutine.
	// It must not block or call this package. A function that returns an error does not call it.
	Lent func()
}

// MaxTensors is the most tensors of a value.
const MaxTensors = 1024

// content is a value that this package holds.
type content struct {
	data    []byte
	tensors []tensor.Strided
	pickled bool
	view    bool
	holders atomic.Int32
	free    func() // after the last holder; may be nil
}

func newContent(data []byte, pickled bool) *content {
	p := &content{data: data, pickled: pickled}
	p.holders.Store(1)
	return p
}

func (p *content) hold() *content {
	p.holders.Add(1)
	return p
}

// drop ends the use of one holder. Nobody holds nil.
func (p *content) drop() {
	if p != nil && p.holders.Add(-1) == 0 && p.free != nil {
		p.free()
	}
}

// value shows the content to the program.
func (p *content) value() Value {
	if p == nil {
		return Value{}
	}
	return Value{Data: p.data, Tensors: p.tensors, Pickled: p.pickled, View: p.view}
}

// tensorBytes is the size of all tensors.
func (p *content) tensorBytes() (n int64) {
	for i := range p.tensors {
		n += p.tensors[i].Len()
	}
	return n
}

// checkValue refuses what cannot travel.
func (o *Options) checkValue(op string, v *Value) error {
	if len(v.Tensors) > MaxTensors {
		return errs.Invalid("%s: tensors: there are too many (got %d, want at most %d): join some", op, len(v.Tensors), MaxTensors)
	}
	total := int64(len(v.Data))
	for i := range v.Tensors {
		m := v.Tensors[i].Memory()
		if err := m.CheckHost(); err != nil {
			return errs.Invalid("%s: tensor %d: it cannot be sent: %v", op, i, err)
		}
		if n := v.Tensors[i].Len(); n > o.ValueBytes-min(total, o.ValueBytes) {
			total = o.ValueBytes + 1
		} else {
			total += n
		}
	}
	if total > o.ValueBytes {
		return errs.Invalid("%s: value: it is too large (want at most %d bytes with its tensors): send several", op, o.ValueBytes)
	}
	return nil
}

// take makes a content of a value of the program.
func (o *Options) take(op string, v *Value) (*content, error) {
	if err := o.checkValue(op, v); err != nil {
		return nil, err
	}
	p := newContent(slices.Clone(v.Data), v.Pickled)
	switch {
	case v.Lent != nil:
		held, err := retain(v.Tensors)
		if err != nil {
			return nil, errs.Invalid("%s: %v", op, err)
		}
		lent := v.Lent
		p.tensors, p.free = held, func() {
			release(held)
			lent()
		}
	case len(v.Tensors) > 0:
		forms := make([]form, len(v.Tensors))
		for i := range v.Tensors {
			forms[i] = formOf(&v.Tensors[i])
		}
		if err := o.empty(p, forms); err != nil {
			p.drop()
			return nil, err
		}
		for i := range v.Tensors {
			if err := p.tensors[i].CopyFrom(&v.Tensors[i]); err != nil {
				p.drop()
				return nil, errs.Invalid("%s: tensor %d: %v", op, i, err)
			}
		}
	}
	return p, nil
}

// retain holds the memory of tensors.
func retain(tensors []tensor.Strided) ([]tensor.Strided, error) {
	held := slices.Clone(tensors)
	for i := range held {
		if err := held[i].Retain(); err != nil {
			release(held[:i])
			return nil, err
		}
	}
	return held, nil
}

func release(held []tensor.Strided) {
	for i := range held {
		held[i].Release()
	}
}

// alignment of tensors in one piece of memory.
const alignment = 64

// empty gives a content contiguous tensors of some forms, in memory of their own.
func (o *Options) empty(p *content, forms []form) error {
	size := int64(0)
	for i := range forms {
		size += (forms[i].bytes() + alignment - 1) &^ (alignment - 1)
	}
	var heap []byte
	var region *tensor.Region
	switch {
	case size == 0:
	case o.Memory == nil:
		heap = make([]byte, size)
	default:
		var err error
		if region, err = o.Memory.Get(int(size)); err != nil {
			return err
		}
		p.free = func() { o.Memory.Put(region) }
	}
	at := int64(0)
	for i := range forms {
		f := &forms[i]
		n := f.bytes()
		var t tensor.Tensor
		var err error
		if n == 0 || region == nil {
			t, err = tensor.FromBytes(f.dtype, f.shape, heap[min(at, int64(len(heap))):][:n:n])
		} else {
			t, err = tensor.FromRegion(region, at, f.dtype, f.shape)
		}
		if err != nil {
			return err
		}
		p.tensors = append(p.tensors, t.Strided())
		at += (n + alignment - 1) &^ (alignment - 1)
	}
	return nil
}

// form is what travels of a tensor beside its elements.
type form struct {
	dtype tensor.DType
	shape tensor.Shape
}

func formOf(v *tensor.Strided) form { return form{v.DType(), v.Shape()} }

// bytes is the size of the elements.
func (f *form) bytes() int64 {
	n, _ := f.shape.Bytes(f.dtype)
	return n
}
