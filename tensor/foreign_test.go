package tensor

import (
	"runtime"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/shm"
)

// storage stands for a torch storage: memory off the Go heap, freed when its
// owner is collected.
type storage struct{ mem *shm.Memory }

func newStorage(t *testing.T, freed chan<- struct{}) *storage {
	mem, err := shm.Create("foreign", 4096, false)
	require.NoError(t, err)
	s := &storage{mem}
	runtime.AddCleanup(s, func(mem *shm.Memory) {
		_ = mem.Close()
		close(freed)
	}, mem)
	return s
}

func (s *storage) pointer() unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(s.mem.Bytes())) }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// collect runs cleanups of everything that is garbage.
func collect() {
	sentinel := make(chan struct{})
	func() {
		garbage := new([64]byte)
		runtime.AddCleanup(garbage, func(c chan struct{}) { close(c) }, sentinel)
	}()
	for !isClosed(sentinel) {
		runtime.GC()
		runtime.Gosched()
	}
	runtime.GC()
}

// requireFreed collects until the owner is gone; cleanups run some time after
// the collection that finds garbage.
func requireFreed(t *testing.T, freed <-chan struct{}) {
	t.Helper()
	for range 100 {
		if collect(); isClosed(freed) {
			return
		}
	}
	t.Fatal("the owner is still referred to")
}

func TestForeignOwnerLivesAsLongAsTensors(t *testing.T) {
	freed := make(chan struct{})
	s := newStorage(t, freed)
	x := must(t)(FromPointer(s.pointer(), Float32, ShapeOf(16, 64), s))
	s = nil
	row := must(t)(x.Slice(15, 16))
	x = Tensor{}
	collect()
	require.False(t, isClosed(freed), "the owner was freed under a slice of its tensor")
	row.Bytes()[0] = 1
	runtime.KeepAlive(row)

	row = Tensor{}
	requireFreed(t, freed)
}

func TestForeignOwnerIsDroppedByClose(t *testing.T) {
	freed := make(chan struct{})
	s := newStorage(t, freed)
	x := must(t)(FromPointer(s.pointer(), Float32, ShapeOf(1024), s))
	s = nil
	require.NoError(t, x.Retain())
	require.ErrorIs(t, x.Region().Close(), stepvan.ErrBusy)
	x.Release()
	require.NoError(t, x.Region().Close())
	require.NoError(t, x.Region().Close())
	requireFreed(t, freed)
	require.ErrorIs(t, x.Check(), stepvan.ErrClosed)
	require.Nil(t, x.Bytes())
	runtime.KeepAlive(x)
}

func TestForeignRegion(t *testing.T) {
	s := newStorage(t, make(chan struct{}))
	x := must(t)(FromPointer(s.pointer(), Uint8, ShapeOf(4096), s))
	r := x.Region()
	require.NotZero(t, r.ID())
	require.Equal(t, uint32(1), r.Generation())
	_, _, ok := r.FD()
	require.False(t, ok)
	require.Equal(t, 4096, r.Len())
	r.Release() // one too many: no effect
	require.NoError(t, x.Retain())
	r.Release()
}

func TestFromPointerRefuses(t *testing.T) {
	buf := new([4]uint64)
	p := unsafe.Pointer(buf)
	_, err := FromPointer(nil, Float32, ShapeOf(1), nil)
	require.ErrorContains(t, err, "nil pointer")
	_, err = FromPointer(unsafe.Add(p, 1), Float32, ShapeOf(1), nil)
	require.ErrorContains(t, err, "not aligned")
	_, err = FromPointer(p, 0, ShapeOf(1), nil)
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	_, err = FromPointer(p, Float32, ShapeOf(-1), nil)
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	_, err = FromPointer(p, Float32, ShapeOf(1<<60), nil)
	require.ErrorIs(t, err, stepvan.ErrInvalid, "no address space holds it")
	empty := must(t)(FromPointer(nil, Float32, ShapeOf(0), nil))
	require.NoError(t, empty.Check())
	require.Empty(t, empty.Bytes())
}

func TestFromStrided(t *testing.T) {
	buf := new([24]float32)
	p := unsafe.Pointer(buf)
	for _, c := range []struct {
		shape   Shape
		strides []int64
	}{
		{ShapeOf(2, 3, 4), []int64{12, 4, 1}},
		{ShapeOf(2, 1, 4), []int64{4, 99, 1}}, // of one element: any stride
		{ShapeOf(), nil},
		{ShapeOf(5, 0), []int64{7, 7}}, // of none: any strides
	} {
		x, err := FromStrided(p, Float32, c.shape, c.strides, buf)
		require.NoError(t, err, c)
		require.Equal(t, c.shape, x.Shape())
	}
	for _, c := range []struct {
		shape   Shape
		strides []int64
		want    string
	}{
		{ShapeOf(2, 3), []int64{1, 2}, ".contiguous()"}, // transposed
		{ShapeOf(2, 3), []int64{6, 1}, "stride 6 of dimension 0"},
		{ShapeOf(4), []int64{2}, ".contiguous()"},
		{ShapeOf(4), []int64{0}, ".contiguous()"}, // expanded
		{ShapeOf(4), []int64{-1}, ".contiguous()"},
		{ShapeOf(4), nil, "0 strides do not fit the 1 dimensions"},
	} {
		_, err := FromStrided(p, Float32, c.shape, c.strides, buf)
		require.ErrorIs(t, err, stepvan.ErrInvalid)
		require.ErrorContains(t, err, c.want)
	}
	_, err := FromStrided(p, Float32, ShapeOf(-1), nil, buf)
	require.ErrorIs(t, err, stepvan.ErrInvalid)
}
