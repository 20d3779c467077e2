package cast

import (
	"sync"
	"unsafe"

	"github.com/stepvan/stepvan/internal/bulk"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/strided"
	"github.com/stepvan/stepvan/tensor"
)

// Kernel converts elements of one type into another, or merges them. It is a value without state, so any number of
// goroutines may use it. Make it with [New] or [NewDivision]; the zero value does nothing.
type Kernel struct {
	to, from tensor.DType
	size     [2]int64 // of an element of both
	reads    bool     // the destination
	direct   loop     // that does all; nil where elements go through a type in the middle
	past     loop     // direct, past the caches; nil for most kernels
	middle   tensor.DType
	open     [2]loop // from the types of both to the middle; nil where they are the same
	compute  loop
	encode   loop
}

// best are the loops of this processor.
var best = sync.OnceValue(func() *loops {
	l := plain()
	l.accelerate()
	return l
})

// New returns the kernel that merges elements of a type into elements of another one. The error is [stepvan.ErrInvalid]
// for types without such a merge. Any type may overwrite itself.
func New(to, from tensor.DType, m Merge) (Kernel, error) { return best().kernel(to, from, m) }

// NewDivision returns the kernel that divides elements by a number, for a mean. The destination may be the source.
func NewDivision(d tensor.DType, by int) (Kernel, error) {
	l := best()
	if !isFloat(d) || by == 0 {
		return Kernel{}, errs.Invalid("elements of %s cannot be divided by %d; give a type of floats, and not 0", d, by)
	}
	k := l.through(d, d, tensor.Float32)
	k.compute = quotient(float32(by))
	if d == tensor.Float64 {
		k = l.through(d, d, tensor.Float64)
		k.compute = quotient(float64(by))
	}
	return k, nil
}

func (l *loops) kernel(to, from tensor.DType, m Merge) (Kernel, error) {
	floats := isFloat(to) && isFloat(from)
	switch {
	case !to.Valid() || !from.Valid() || m >= mergeEnd:
	case m == Overwrite && to == from:
		size := int64(to.Size())
		return Kernel{to: to, from: to, size: [2]int64{size, size}}, nil
	case m == Overwrite && floats:
		k := l.through(to, from, tensor.Float32)
		switch {
		case from == tensor.Float32:
			k.direct, k.past = k.encode, l.pastEncode[to]
		case to == tensor.Float32:
			k.direct, k.past = k.open[1], l.pastDecode[from]
		case to == tensor.Float64:
			k.direct = l.decode64[from]
		}
		return k, nil
	case to == from && l.merge[to][m] != nil:
		size := int64(to.Size())
		return Kernel{to: to, from: to, size: [2]int64{size, size}, reads: true, direct: l.merge[to][m]}, nil
	case floats:
		middle := tensor.Float32
		if to == tensor.Float64 || from == tensor.Float64 {
			middle = tensor.Float64
		}
		k := l.through(to, from, middle)
		k.reads, k.compute = true, l.merge[middle][m]
		return k, nil
	}
	return Kernel{}, errs.Invalid("there is no %s of %s into %s; give floats, or one type of numbers", m, from, to)
}

// through returns a kernel with float32 or float64 in the middle.
func (l *loops) through(to, from, middle tensor.DType) Kernel {
	k := Kernel{to: to, from: from, size: [2]int64{int64(to.Size()), int64(from.Size())}, middle: middle}
	k.open, k.encode = [2]loop{l.decode[to], l.decode[from]}, l.encode[to]
	if middle == tensor.Float64 {
		k.open, k.encode = [2]loop{l.decode64[to], l.decode64[from]}, l.encode64[to]
	}
	return k
}

func isFloat(d tensor.DType) bool {
	switch d {
	case tensor.Float64, tensor.Float32, tensor.Float16, tensor.BFloat16, tensor.Float8E4M3FN, tensor.Float8E5M2:
		return true
	}
	return false
}

// Walk returns the walk over two views of the kernel's types, for Apply. The steps are in bytes.
func (k *Kernel) Walk(dims ...strided.Dim) strided.Walk {
	return strided.Between(k.size[0], k.size[1], dims...)
}

// Apply works on all elements of a walk that Walk has made. The rules of [strided.Walk.Copy] hold.
// Budget: 0 allocations.
func (k *Kernel) Apply(w *strided.Walk, to, from unsafe.Pointer) { k.ApplyPart(w, to, from, w.Bytes()) }

// ApplyPart is Apply for a part of whole bytes of the destination, as [strided.Walk.CopyPart] has it.
// Budget: 0 allocations.
func (k *Kernel) ApplyPart(w *strided.Walk, to, from unsafe.Pointer, whole int64) {
	switch {
	case k.size[0] == 0:
	case k.to == k.from && !k.reads && k.middle == 0:
		w.CopyPart(to, from, whole)
	case k.past != nil && w.Run() >= leastPast && bulk.PassesCaches(whole):
		w.Apply(to, from, false, k.runPast)
	case k.direct != nil:
		w.Apply(to, from, k.reads, func(to, from unsafe.Pointer, n int) { k.run(nil, to, from, n) })
	default:
		b := buffers.Get().(*buffer)
		w.Apply(to, from, k.reads, func(to, from unsafe.Pointer, n int) { k.run(b, to, from, n) })
		buffers.Put(b)
	}
}

// Run works on n elements that follow one another on both sides. Budget: 0 allocations.
func (k *Kernel) Run(to, from unsafe.Pointer, n int) {
	if k.size[0] == 0 || n == 0 {
		return
	}
	w := k.Walk(strided.Dim{Extent: int64(n), To: k.size[0], From: k.size[1]})
	k.Apply(&w, to, from)
}

const (
	// most is how many elements a direct loop works on at a time: Go's runtime cannot stop a goroutine in assembly.
	most = 64 << 10
	// block is how many elements go through another type at a time.
	block = 1024
)

// buffer holds the elements of both sides in the type in the middle.
type buffer struct{ to, from [block]float64 }

var buffers = sync.Pool{New: func() any { return new(buffer) }}

// run is Run, with a buffer for kernels that are not direct.
func (k *Kernel) run(b *buffer, to, from unsafe.Pointer, n int) {
	step := most
	if k.direct == nil {
		step = block
	}
	for {
		part := min(n, step)
		if k.direct != nil {
			k.direct(to, from, part)
		} else {
			k.runThrough(b, to, from, part)
		}
		if n -= part; n == 0 {
			return
		}
		to, from = unsafe.Add(to, int64(part)*k.size[0]), unsafe.Add(from, int64(part)*k.size[1])
	}
}

const (
	lineBytes = 64
	// leastPast is the size of the least run that goes past the caches, in bytes. Its ends do not.
	leastPast = 4 << 10
)

// runPast is run past the caches. What is before the first whole line and behind the last one goes into the caches.
func (k *Kernel) runPast(to, from unsafe.Pointer, n int) {
	before := int64(-uintptr(to) & (lineBytes - 1))
	if before%k.size[0] != 0 {
		k.run(nil, to, from, n) // no element begins where a line does
		return
	}
	part, do := min(n, int(before/k.size[0])), k.direct
	for {
		if part > 0 {
			do(to, from, part)
			n -= part
			to, from = unsafe.Add(to, int64(part)*k.size[0]), unsafe.Add(from, int64(part)*k.size[1])
		}
		if n == 0 {
			return
		}
		if part, do = min(n, most)&^31, k.past; part == 0 {
			part, do = n, k.direct
		}
	}
}

// runThrough works on a block, with another type in the middle.
func (k *Kernel) runThrough(b *buffer, to, from unsafe.Pointer, n int) {
	x, y := to, from
	if k.open[1] != nil {
		y = unsafe.Pointer(&b.from)
		k.open[1](y, from, n)
	}
	if k.encode != nil {
		x = unsafe.Pointer(&b.to)
		if k.reads {
			k.open[0](x, to, n)
		}
	}
	if k.compute == nil {
		x = y
	} else {
		k.compute(x, y, n)
	}
	if k.encode != nil {
		k.encode(to, x, n)
	}
}
