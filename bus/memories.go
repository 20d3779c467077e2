package bus

import (
	"fmt"
	"unsafe"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/tensor"
)

// memories are what a client has shared with its agent, by number. Agent.mu guards the map.
type memories struct {
	of     *session
	shared map[uint64]tensor.Tensor
}

// share notes memory of the client and returns its number. It is retained.
func (m *memories) share(t tensor.Tensor) (uint64, error) {
	if err := t.Retain(); err != nil {
		return 0, err
	}
	a := m.of.a
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := m.of.check(); err != nil {
		t.Release()
		return 0, err
	}
	number := a.number()
	m.shared[number] = t
	return number, nil
}

// lend notes memory at an address of this process.
func (m *memories) lend(address uintptr, n int64) (uint64, error) {
	t, err := tensor.FromPointer(*(*unsafe.Pointer)(unsafe.Pointer(&address)), tensor.Uint8, tensor.ShapeOf(n), nil)
	if err != nil {
		return 0, fmt.Errorf("agent: memory of the client: %w", err)
	}
	return m.share(t)
}

// unshare forgets memory. What uses it holds it by itself.
func (m *memories) unshare(number uint64) {
	m.of.a.mu.Lock()
	defer m.of.a.mu.Unlock()
	if t, ok := m.shared[number]; ok {
		delete(m.shared, number)
		t.Release()
	}
}

// releaseAll forgets all. Under mu.
func (m *memories) releaseAll() {
	for number, t := range m.shared {
		t.Release()
		delete(m.shared, number)
	}
}

// find returns the view that a handle names. Under mu.
func (m *memories) find(b []byte) (tensor.Strided, error) {
	h, err := DecodeHandle(b)
	if err != nil {
		return tensor.Strided{}, err
	}
	t, ok := m.shared[h.Memory]
	if !ok {
		return tensor.Strided{}, fmt.Errorf("tensor handle: memory %d: the client has not shared it, or not any more: %w", h.Memory, stepvan.ErrStale)
	}
	size := int64(h.DType.Size())
	if h.DType.Size() == t.DType().Size() && h.Offset%size == 0 {
		if t, err = t.Reinterpret(h.DType); err != nil {
			return tensor.Strided{}, err
		}
		return t.AsStrided(h.Shape, h.Strides, h.Offset/size)
	}
	span, err := tensor.Span(h.DType, h.Shape, h.Strides)
	if err != nil {
		return tensor.Strided{}, err
	}
	if h.Offset > int64(t.Len()) || span > (int64(t.Len())-h.Offset)/size {
		return tensor.Strided{}, errs.Invalid("tensor handle: %s from byte %d on leaves the memory of %d bytes: share all of it", h.Shape, h.Offset, t.Len())
	}
	part, err := tensor.FromRegion(t.Region(), t.Offset()+h.Offset, h.DType, tensor.ShapeOf(span))
	if err != nil {
		return tensor.Strided{}, err
	}
	return part.AsStrided(h.Shape, h.Strides, 0)
}
