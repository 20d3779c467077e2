package tensor

import (
	"encoding/binary"
	"testing"
)

// FuzzViews applies slices and views that the input chooses to a tensor. It
// compares each with what its arguments allow. Whatever a peer or a program asks
// for, a view never leaves the memory of the tensor that it was made of.
func FuzzViews(f *testing.F) {
	f.Add(uint8(12), encode(2, 3, 4), encode(0, 1, 1, 3))
	f.Add(uint8(1), encode(-1), encode(0, 0))
	f.Add(uint8(16), encode(1<<62, 4), encode(1<<63-1, -1<<63))
	f.Add(uint8(22), encode(0, 1<<40, 1<<40), encode(0, 0))
	f.Fuzz(func(t *testing.T, kind uint8, dims, steps []byte) {
		d := DType(kind)
		shape, err := MakeShape(decode(dims)...)
		if (err == nil) != shape.Valid() {
			t.Fatalf("%v: valid %t, error %v", shape, shape.Valid(), err)
		}
		n, ok := shape.Bytes(d)
		if !ok || n > 1<<16 {
			return
		}
		x, err := FromBytes(d, shape, aligned(n))
		if err != nil {
			t.Fatalf("%s of %s: %v", shape, d, err)
		}
		walk(t, x, decode(steps))
	})
}

// walk uses the steps in pairs: as rows of a Slice, then as the shape of a View.
func walk(t *testing.T, x Tensor, steps []int64) {
	for ; len(steps) >= 2; steps = steps[2:] {
		lo, hi := steps[0], steps[1]
		y, err := x.Slice(lo, hi)
		fits := x.Shape().Rank() > 0 && 0 <= lo && lo <= hi && hi <= x.Shape().Dim(0)
		if fits != (err == nil) {
			t.Fatalf("rows %d to %d of %s: %v", lo, hi, x.Shape(), err)
		}
		if err == nil {
			inside(t, x, y)
			x = y
		}
		want := ShapeOf(lo, hi)
		y, err = x.View(want)
		n, ok := want.Bytes(x.DType())
		if fits = ok && n == int64(x.Len()); fits != (err == nil) {
			t.Fatalf("%s viewed as %s: %v", x.Shape(), want, err)
		}
		if err == nil {
			inside(t, x, y)
			x = y
		}
	}
}

func inside(t *testing.T, outer, inner Tensor) {
	t.Helper()
	n, ok := inner.Shape().Bytes(inner.DType())
	if !ok || n != int64(inner.Len()) || len(inner.Bytes()) != inner.Len() {
		t.Fatalf("%s has %d bytes", inner, inner.Len())
	}
	if inner.Offset() < outer.Offset() || inner.Offset()+n > outer.Offset()+int64(outer.Len()) {
		t.Fatalf("%s at %d leaves %s at %d", inner, inner.Offset(), outer, outer.Offset())
	}
	if inner.address()%uintptr(inner.DType().Align()) != 0 {
		t.Fatalf("%s at %d is not aligned", inner, inner.Offset())
	}
}

// FuzzFromRegion places tensors in a region by numbers that a peer could send.
func FuzzFromRegion(f *testing.F) {
	a, err := NewAllocator(Options{})
	if err != nil {
		f.Fatal(err)
	}
	const size = 4096
	r, err := a.Alloc(size)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		if r.Close() != nil || a.Close() != nil {
			f.Error("the region is still held")
		}
	})
	f.Add(uint8(12), int64(64), encode(2, 3))
	f.Add(uint8(11), int64(-2), encode(1))
	f.Add(uint8(13), int64(1<<63-8), encode(1))
	f.Fuzz(func(t *testing.T, kind uint8, off int64, dims []byte) {
		d, shape := DType(kind), ShapeOf(decode(dims)...)
		x, err := FromRegion(r, off, d, shape)
		n, ok := shape.Bytes(d)
		fits := ok && off >= 0 && off <= size && n <= size-off && off%int64(d.Align()) == 0
		if fits != (err == nil) {
			t.Fatalf("%s of %s at %d: %v", shape, d, off, err)
		}
		if err == nil && int64(len(x.Bytes())) != n {
			t.Fatalf("%s has %d bytes", x, len(x.Bytes()))
		}
	})
}

// FuzzParseDType reads names that come from files and peers.
func FuzzParseDType(f *testing.F) {
	for d := DType(1); d < dtypeEnd; d++ {
		f.Add(d.String())
	}
	f.Fuzz(func(t *testing.T, name string) {
		d, err := ParseDType(name)
		if (err == nil) != d.Valid() {
			t.Fatalf("%q: %v, %v", name, d, err)
		}
		if err == nil && d.String() != name && "torch."+d.String() != name {
			t.Fatalf("%q read as %v", name, d)
		}
	})
}

func encode(n ...int64) []byte {
	var b []byte
	for _, v := range n {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	return b
}

func decode(b []byte) []int64 {
	var n []int64
	for ; len(b) >= 8; b = b[8:] {
		n = append(n, int64(binary.LittleEndian.Uint64(b)))
	}
	return n
}
