//go:build cgo

package main

import (
	"fmt"
	"math"
	"math/bits"
	"sync"
	"unsafe"

	"github.com/stepvan/stepvan/capi/internal/numbers"
	"github.com/stepvan/stepvan/device/cuda"
	"github.com/stepvan/stepvan/internal/storages"
	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/tensor"
)

// maxTensors is the most tensors of one call: STEPVAN_MAX_TENSORS cannot be more.
const maxTensors = 65535

// maxAddress bounds the addresses of any process: five levels of page tables have 56 bits for it.
const maxAddress = 1 << 56

// call has the arguments of one operation in Go. Operations reuse it.
type call struct {
	loan     *loan
	windows  []*window // of tensors without a number
	tensors  []tensor.Tensor
	pull     []tensor.Tensor
	known    []tensor.Tensor // of several requests
	storages *storages.Table // of the node; nil where the node registers nothing by itself
	named    []namedMemory   // of stepvan_wrap, where there are storages
	span     cTensor         // of a view: from its first to its last element
	strided  tensor.Strided  // of a transfer
	variable []bool
	ranks    []ps.Rank // of pushes, then of pulls
	handlers []ps.RequestID
	pending  []*pending
	exchange ps.Exchange
}

var callPool = sync.Pool{New: func() any { return new(call) }}

// newCall begins an operation. owner keeps its foreign memory alive.
func newCall(owner cUint64) *call {
	k := callPool.Get().(*call)
	k.loan = foreign.begin(uint64(owner))
	return k
}

// namedMemory is memory with a number that an operation names.
type namedMemory struct {
	number cUint64
	region *tensor.Region
}

// end releases foreign memory, except what the operation still holds. happened tells whether it has taken the owner.
func (k *call) end(happened bool) {
	if happened && k.storages != nil {
		k.see()
	}
	foreign.end(k.loan, happened)
	for i, w := range k.windows {
		w.Shut()
		k.windows[i] = nil
	}
	clear(k.tensors)
	clear(k.pull)
	clear(k.known)
	clear(k.pending)
	clear(k.named)
	k.storages, k.named, k.span = nil, k.named[:0], cTensor{}
	k.strided = tensor.Strided{}
	k.loan, k.windows, k.exchange = nil, k.windows[:0], ps.Exchange{}
	k.tensors, k.pull, k.variable, k.ranks = k.tensors[:0], k.pull[:0], k.variable[:0], k.ranks[:0]
	k.handlers, k.pending, k.known = k.handlers[:0], k.pending[:0], k.known[:0]
	callPool.Put(k)
}

// see tells the table which memory the operation names.
func (k *call) see() {
	for i := range k.named {
		if i == 0 || k.named[i].number != k.named[i-1].number {
			k.storages.See(storages.ID(k.named[i].number), k.named[i].region)
		}
	}
}

// add appends the Go form of tensors of C to dst. A tensor of C may lie in the memory of one of own.
func (k *call) add(dst []tensor.Tensor, src []cTensor, own []tensor.Tensor) ([]tensor.Tensor, error) {
	for i := range src {
		dst = append(dst, tensor.Tensor{})
		if err := k.tensor(&dst[len(dst)-1], &src[i], own); err != nil {
			return dst, err
		}
	}
	return dst, nil
}

// tensor makes t of a tensor of C, in its memory.
func (k *call) tensor(t *tensor.Tensor, c *cTensor, own []tensor.Tensor) error {
	if c.rank > maxRank {
		return invalid("tensor: it has %d dimensions (want at most %d)", c.rank, maxRank)
	}
	if c.flags&^(flagVariable|flagReadOnly) != 0 {
		return invalid("tensor: flags: some do not exist (got %#x, want STEPVAN_VARIABLE and STEPVAN_READ_ONLY at most)", c.flags)
	}
	at := deviceOf(c)
	if at.IsHost() && at.ID != 0 || !at.IsHost() && !at.Kind.Valid() {
		return invalid("tensor: device_kind and device: there is no such device (got %d and %d, want a kind of DLPack and a number, or 0 and 0 for the host)", c.device_kind, c.device)
	}
	var shape tensor.Shape
	elems, ok := shape.SetDims(unsafe.Slice((*int64)(unsafe.Pointer(&c.shape)), c.rank)...)
	d := tensor.DType(c.dtype)
	high, n := bits.Mul64(uint64(elems), uint64(d.Size()))
	fits := d.Valid() && high == 0 && n <= math.MaxInt64
	switch {
	case !ok || !fits:
		return invalid("tensor: %v of type %d is not a tensor: give dimensions from 0 on, and a type of stepvan_dtype", unsafe.Slice((*int64)(unsafe.Pointer(&c.shape)), c.rank), c.dtype)
	case n != uint64(c.bytes):
		return invalid("tensor: bytes does not fit %s of %s (got %d, want %d)", shape, d, c.bytes, n)
	case n == 0:
		empty, err := tensor.FromBytes(d, shape, nil)
		*t = empty
		return err
	case !at.IsHost():
		return k.onDevice(t, at, c, own, d, &shape)
	case c.memory != 0:
		return k.numbered(t, c, own, d, &shape)
	case c.data == nil:
		return invalid("tensor: data of %d bytes must not be NULL", n)
	case within(t, c, own, d, &shape):
		return nil
	}
	return k.foreignTensor(t, c, d, &shape)
}

// numbered makes a tensor in memory that has a number.
func (k *call) numbered(t *tensor.Tensor, c *cTensor, own []tensor.Tensor, d tensor.DType, shape *tensor.Shape) error {
	m, ok := memories.Get(numbers.ID(c.memory))
	if !ok {
		return noMemory(c.memory)
	}
	at := uintptr(c.data)
	if at < m.base || uint64(at-m.base) > m.bytes || uint64(c.bytes) > m.bytes-uint64(at-m.base) {
		return invalid("tensor: %d bytes at %#x are not within the memory that is named (%d bytes at %#x)", c.bytes, at, m.bytes, m.base)
	}
	if k.loan != nil && m.window != nil && !m.owned {
		if within(t, c, own, d, shape) {
			return nil
		}
		return k.lent(t, &m, c, d, shape)
	}
	if err := t.SetRegion(m.region, int64(at-m.base), d, shape); err != nil {
		return err
	}
	if m.region.Generation() != m.generation { // it was freed meanwhile
		return noMemory(c.memory)
	}
	k.note(&m, c.memory)
	return nil
}

// lent makes a tensor in memory of stepvan_wrap that has no owner. The owner of the operation keeps it. So it gets a
// window of its own, which holds the memory of the number.
func (k *call) lent(t *tensor.Tensor, m *memory, c *cTensor, d tensor.DType, shape *tensor.Shape) error {
	if m.region.Retain() != nil {
		return noMemory(c.memory)
	}
	if m.region.Generation() != m.generation {
		m.region.Release()
		return noMemory(c.memory)
	}
	w, r := foreign.expose(unsafe.Slice((*byte)(c.data), c.bytes), k.loan)
	w.over = m.region
	k.windows = append(k.windows, w)
	k.note(m, c.memory)
	return t.SetRegion(r, 0, d, shape)
}

// note notes that the operation names memory of stepvan_wrap, where the node counts that.
func (k *call) note(m *memory, number cUint64) {
	if k.storages != nil && m.window != nil {
		k.named = append(k.named, namedMemory{number, m.region})
	}
}

// deviceOf returns what holds the memory of a tensor of C.
func deviceOf(c *cTensor) tensor.Device {
	return tensor.Device{Kind: tensor.DeviceKind(c.device_kind), ID: int32(c.device)}
}

// onDevice makes a tensor in memory of an accelerator.
func (k *call) onDevice(t *tensor.Tensor, at tensor.Device, c *cTensor, own []tensor.Tensor, d tensor.DType, shape *tensor.Shape) error {
	if c.memory != 0 {
		return invalid("tensor: memory: a number names memory of the host (got %#x, want 0 for memory of %s)", c.memory, at)
	}
	if err := tensor.CheckDevice(at, uintptr(c.data), int64(c.bytes)); err != nil {
		return err
	}
	if within(t, c, own, d, shape) {
		return nil
	}
	if at.Kind == tensor.DeviceCUDA {
		if err := cuda.Use(); err != nil { // the first call loads the library
			return fmt.Errorf("tensor: %s holds it: %w", at, err)
		}
	}
	w, r := foreign.exposeDevice(at, uintptr(c.data), int64(c.bytes), k.loan)
	k.windows = append(k.windows, w)
	return t.SetRegion(r, 0, d, shape)
}

// within makes a tensor in the memory of one of own.
func within(t *tensor.Tensor, c *cTensor, own []tensor.Tensor, d tensor.DType, shape *tensor.Shape) bool {
	at, n := uintptr(c.data), uintptr(c.bytes)
	for i := range own {
		o := &own[i]
		r := o.Region()
		if r == nil {
			continue
		}
		base := o.Address()
		if o.Device().IsHost() != deviceOf(c).IsHost() || at < base || at-base > uintptr(o.Len()) || n > uintptr(o.Len())-(at-base) {
			continue
		}
		return t.SetRegion(r, o.Offset()+int64(at-base), d, shape) == nil
	}
	return false
}

// foreignTensor makes a tensor in memory without a number.
func (k *call) foreignTensor(t *tensor.Tensor, c *cTensor, d tensor.DType, shape *tensor.Shape) error {
	if !addressable(c.data, uint64(c.bytes)) {
		return invalid("tensor: %d bytes at %#x do not fit into an address space", c.bytes, uintptr(c.data))
	}
	w, r := foreign.expose(unsafe.Slice((*byte)(c.data), c.bytes), k.loan)
	k.windows = append(k.windows, w)
	return t.SetRegion(r, 0, d, shape)
}

func addressable(p unsafe.Pointer, n uint64) bool {
	at := uint64(uintptr(p))
	return at <= maxAddress && n <= maxAddress-at
}

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// describe writes a tensor of Go to a tensor of C.
func describe(c *cTensor, t *tensor.Tensor, flags uint16) {
	*c = cTensor{bytes: cUint64(t.Len()), dtype: cUint8(t.DType()), flags: cUint16(flags)}
	if at := t.Device(); !at.IsHost() {
		c.device_kind, c.device = cUint16(at.Kind), cUint16(at.ID)
		address := t.Address()
		c.data = *(*unsafe.Pointer)(unsafe.Pointer(&address)) // not a conversion: no memory of Go
	} else if b := t.Bytes(); len(b) > 0 {
		c.data = unsafe.Pointer(unsafe.SliceData(b))
	}
	setShape(c, t.Dims())
}

func setShape(c *cTensor, dims []int64) {
	c.rank = cUint8(len(dims))
	copy(unsafe.Slice((*int64)(unsafe.Pointer(&c.shape)), maxRank), dims)
}
