package tensor_test

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/tensor"
)

// Memory of the allocator can be written in place by peers on every transport.
func ExampleAllocator_Zeros() {
	a, err := tensor.NewAllocator(tensor.Options{Name: "example"})
	if err != nil {
		fmt.Println(err)
		return
	}
	x, err := a.Zeros(tensor.Float32, 2, 3)
	if err != nil {
		fmt.Println(err)
		return
	}
	row, _ := x.Slice(1, 2)
	values, _ := tensor.As[float32](row)
	values[0] = 7
	all, _ := tensor.As[float32](x)
	fmt.Println(x, all)
	fmt.Println(x.Region().Close(), a.Close())
	// Output:
	// float32[2 3] [0 0 0 7 0 0]
	// <nil> <nil>
}

// Tensors of the Go heap need no allocator: gonum's matrices, for instance, are
// slices of float64.
func ExampleFromSlice() {
	x, err := tensor.FromSlice([]float64{1, 2, 3, 4, 5, 6}, 3, 2)
	fmt.Println(x, x.Len(), err)
	_, err = tensor.FromSlice([]float64{1, 2, 3}, 2, 2)
	fmt.Println(err)
	// Output:
	// float64[3 2] 48 <nil>
	// stepvan: invalid argument: [2 2] of float64 takes 32 bytes, the slice has 24
}

// Types that Go does not have are held as unsigned integers.
func ExampleTensor_Reinterpret() {
	bits, _ := tensor.FromSlice([]uint16{0x3f80, 0x4000}) // 1 and 2
	x, err := bits.Reinterpret(tensor.BFloat16)
	fmt.Println(x, err)
	// Output: bfloat16[2] <nil>
}

func ExampleTensor_View() {
	x, _ := tensor.FromSlice([]int32{1, 2, 3, 4, 5, 6})
	y, err := x.View(tensor.ShapeOf(3, 2))
	fmt.Println(y.Shape(), err)
	// Output: [3 2] <nil>
}

func ExampleTensor_Slice() {
	x, _ := tensor.FromSlice([]int32{1, 2, 3, 4, 5, 6}, 3, 2)
	y, _ := x.Slice(1, 3)
	values, err := tensor.As[int32](y)
	fmt.Println(values, y.Offset(), err)
	// Output: [3 4 5 6] 8 <nil>
}

// The owner of foreign memory stays alive as long as a tensor refers to it.
func ExampleFromStrided() {
	storage := new([6]float32) // stands for memory of another library
	p := unsafe.Pointer(storage)
	x, err := tensor.FromStrided(p, tensor.Float32, tensor.ShapeOf(2, 3), []int64{3, 1}, storage)
	fmt.Println(x, err)
	_, err = tensor.FromStrided(p, tensor.Float32, tensor.ShapeOf(3, 2), []int64{1, 3}, storage)
	fmt.Println(err)
	// Output:
	// float32[2 3] <nil>
	// stepvan: invalid argument: the tensor is not contiguous: stride 3 of dimension 1 of [3 2] should be 1; call .contiguous() first
}

// An operation holds the memory that it uses.
func ExampleRegion_Close() {
	a, _ := tensor.NewAllocator(tensor.Options{})
	x, _ := a.Empty(tensor.Uint8, 100)
	_ = x.Retain() // an operation begins
	fmt.Println(errors.Is(x.Region().Close(), stepvan.ErrBusy))
	x.Release() // and ends
	fmt.Println(x.Region().Close())
	fmt.Println(errors.Is(x.Check(), stepvan.ErrClosed), x.Bytes() == nil)
	fmt.Println(a.Close())
	// Output:
	// true
	// <nil>
	// true true
	// <nil>
}

// Buffers that come and go with messages are taken from the pool.
func ExampleAllocator_Get() {
	a, _ := tensor.NewAllocator(tensor.Options{})
	r, _ := a.Get(1 << 20)
	x, _ := tensor.FromRegion(r, 0, tensor.BFloat16, tensor.ShapeOf(1024, 512))
	a.Put(r)
	again, _ := a.Get(1 << 20)
	fmt.Println(again == r, errors.Is(x.Check(), stepvan.ErrStale))
	a.Put(again)
	fmt.Println(a.Close())
	// Output:
	// true true
	// <nil>
}

func ExampleAllocator_Close() {
	a, _ := tensor.NewAllocator(tensor.Options{Name: "server 0"})
	r, _ := a.Alloc(4096)
	var leaks *tensor.LeakError
	if errors.As(a.Close(), &leaks) {
		fmt.Println(len(leaks.Leaks), leaks.Leaks[0].Bytes)
	}
	fmt.Println(r.Close(), a.Close())
	// Output:
	// 1 4096
	// <nil> <nil>
}

func ExampleParseDType() {
	d, err := tensor.ParseDType("torch.float8_e4m3fn")
	fmt.Println(d, d.Size(), err)
	// Output: float8_e4m3fn 1 <nil>
}

func ExampleMakeShape() {
	s, _ := tensor.MakeShape(128, 7168)
	n, _ := s.Bytes(tensor.Float8E4M3FN)
	fmt.Println(s, n)
	_, err := tensor.MakeShape(1<<40, 1<<40)
	fmt.Println(err)
	// Output:
	// [128 7168] 917504
	// stepvan: invalid argument: the shape has more elements than 63 bits can count
}
