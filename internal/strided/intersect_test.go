package strided

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// layout is a view as a program has it.
type layout struct {
	at, size         int64
	extents, strides []int64
}

func (l *layout) view() View { return NewView(l.at, l.size, l.extents, l.strides) }

// bytes calls f with the place of each byte of each element.
func (l *layout) bytes(f func(at int64)) {
	if elements(l.extents) == 0 {
		return
	}
	each(l.extents, func(index []int64) {
		at := l.at
		for i, n := range index {
			at += n * l.strides[i] * l.size
		}
		for k := range l.size {
			f(at + k)
		}
	})
}

// intersects is Intersect by a list of all places.
func (l *layout) intersects(other *layout) (intersect bool) {
	mine := map[int64]bool{}
	l.bytes(func(at int64) { mine[at] = true })
	other.bytes(func(at int64) { intersect = intersect || mine[at] })
	return intersect
}

// anyLayout is a view of any strides.
func anyLayout(r *rand.Rand) (l layout) {
	l.at, l.size = int64(r.IntN(200)), []int64{1, 1, 2, 3, 4, 8}[r.IntN(6)]
	for range r.IntN(5) {
		l.extents, l.strides = append(l.extents, int64(1+r.IntN(6))), append(l.strides, int64(r.IntN(60)))
		if r.IntN(40) == 0 {
			l.extents[0] = 0
		}
	}
	return l
}

// box is a part of a tensor with some strides.
func box(r *rand.Rand, size int64, shape, strides []int64) layout {
	l := layout{at: 1000, size: size, strides: strides}
	for i, n := range shape {
		from := r.Int64N(n)
		l.at += from * strides[i] * size
		l.extents = append(l.extents, 1+r.Int64N(n-from))
		if r.IntN(3) == 0 {
			l.at -= from * strides[i] * size
			l.extents[i] = n // whole
		}
	}
	return l
}

// tensorOf returns a shape with its strides, sometimes with gaps.
func tensorOf(r *rand.Rand, most int) (shape, strides []int64) {
	stride := int64(1 + r.IntN(2))
	rank := 1 + r.IntN(5)
	shape, strides = make([]int64, rank), make([]int64, rank)
	for i := rank - 1; i >= 0; i-- {
		shape[i] = int64(1 + r.IntN(most))
		strides[i] = stride
		stride = stride*shape[i] + int64(r.IntN(5)/4)
	}
	return shape, strides
}

// Against a list of all places: views of any strides, boxes of one tensor, and the same memory as another tensor.
func TestIntersect(t *testing.T) {
	kinds := map[string]func(r *rand.Rand) (a, b layout){
		"any": func(r *rand.Rand) (a, b layout) { return anyLayout(r), anyLayout(r) },
		"boxes of one tensor": func(r *rand.Rand) (a, b layout) {
			shape, strides := tensorOf(r, 6)
			return box(r, 2, shape, strides), box(r, 2, shape, strides)
		},
		"boxes of two tensors in one place": func(r *rand.Rand) (a, b layout) {
			shape, strides := tensorOf(r, 6)
			a = box(r, 4, shape, strides)
			shape, strides = tensorOf(r, 6)
			return a, box(r, []int64{1, 4}[r.IntN(2)], shape, strides)
		},
	}
	for name, pair := range kinds {
		found := map[bool]int{}
		for seed := range uint64(4000) {
			r := rand.New(rand.NewPCG(seed, 3))
			a, b := pair(r)
			want := a.intersects(&b)
			found[want]++
			x, y := a.view(), b.view()
			got, sure := Intersect(&x, &y)
			require.True(t, sure, "%s: %+v %+v", name, a, b)
			require.Equal(t, want, got, "%s: %+v %+v", name, a, b)
			got, _ = Intersect(&y, &x)
			require.Equal(t, want, got, "%s, the other way: %+v %+v", name, a, b)
		}
		require.Greater(t, min(found[true], found[false]), 300, name)
	}
}

// The answer for boxes of one tensor is always sure. The tensors are large and have many dimensions, some of which are
// whole in one box and not in the other.
func TestIntersectIsSureOfBoxes(t *testing.T) {
	for seed := range uint64(20_000) {
		r := rand.New(rand.NewPCG(seed, 4))
		shape, strides := make([]int64, MaxRank), make([]int64, MaxRank)
		stride := int64(1)
		for i := MaxRank - 1; i >= 0; i-- {
			shape[i], strides[i] = int64(1+r.IntN(20)), stride
			if i == 0 {
				shape[i] = 1_000_000
			}
			stride *= shape[i]
		}
		a, b := box(r, 4, shape, strides), box(r, 4, shape, strides)
		want := true
		for i := range shape {
			x, y := a.at-1000, b.at-1000
			first, second := x/4/strides[i]%shape[i], y/4/strides[i]%shape[i]
			want = want && first < second+b.extents[i] && second < first+a.extents[i]
		}
		x, y := a.view(), b.view()
		got, sure := Intersect(&x, &y)
		require.True(t, sure, "%+v %+v", a, b)
		require.Equal(t, want, got, "%+v %+v", a, b)
	}
}

// A search that would take for ever is given up, and says so.
func TestIntersectThatNobodyFinds(t *testing.T) {
	a := layout{0, 1, []int64{1 << 16, 1 << 16, 1 << 16}, []int64{1<<40 + 15, 1<<40 + 37, 1<<40 + 7}}
	b := layout{3, 1, []int64{1 << 16, 1 << 16, 1 << 16}, []int64{1<<40 + 91, 1<<40 + 183, 1<<40 + 201}}
	x, y := a.view(), b.view()
	intersect, sure := Intersect(&x, &y)
	require.False(t, intersect)
	require.False(t, sure)
	far := layout{0, 1, []int64{1 << 20, 2}, []int64{1 << 41, 1}}
	z := far.view()
	_, sure = Intersect(&z, &x)
	require.False(t, sure, "both together leave the address space")
}

func TestViewsWithoutElementsMeetNothing(t *testing.T) {
	none, some := NewView(0, 4, []int64{3, 0}, []int64{1, 1}), NewView(0, 4, []int64{3}, []int64{1})
	for _, pair := range [][2]*View{{&none, &some}, {&some, &none}, {&none, &none}, {new(View), &some}} {
		intersect, sure := Intersect(pair[0], pair[1])
		require.False(t, intersect)
		require.True(t, sure)
	}
}

func TestIntersectAllocatesNothing(t *testing.T) {
	extents, strides := []int64{7, 6, 5}, []int64{1000, 100, 3}
	require.Zero(t, testing.AllocsPerRun(10, func() {
		a, b := NewView(0, 4, extents, strides), NewView(4, 4, extents, strides)
		Intersect(&a, &b)
	}))
}

func BenchmarkIntersect(b *testing.B) {
	for rank := 1; rank <= 4; rank++ {
		b.Run(fmt.Sprint("rank ", rank), func(b *testing.B) {
			extents, strides := []int64{100, 10, 20, 32}[:rank], []int64{100_000, 4096, 128, 1}[:rank]
			x, y := NewView(0, 2, extents, strides), NewView(100, 2, extents, strides)
			for b.Loop() {
				Intersect(&x, &y)
			}
		})
	}
}
