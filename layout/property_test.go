package layout

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/race"
)

// pairs is how many random pairs of layouts each test takes.
var pairs = race.Fewer(5000)

// TestParts compares the parts of random layouts with lists of indices.
func TestParts(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	refused := 0
	for range pairs {
		shape := anyShape(r)
		l := anyLayout(r, len(shape), true, 0)
		err := l.CheckShape(shapeOf(t, shape))
		if uneven(l, shape) {
			require.ErrorIs(t, err, stepvan.ErrInvalid, "%s of %v", l, shape)
			refused++
			continue
		}
		require.NoError(t, err, "%s of %v", l, shape)
		index := r.IntN(l.Mesh.Size())
		p, err := l.Part(shapeOf(t, shape), index)
		require.NoError(t, err)
		want := naive(l, shape, index)
		for d := range shape {
			require.Equal(t, want[d], indicesOf(&p, d), "%s of %v, index %d", l, shape, index)
			canonical(t, p.Spans(d))
		}
		again, rest, err := ReadPart(p.Append(nil))
		require.NoError(t, err)
		require.Empty(t, rest)
		require.True(t, p.Equal(&again))
	}
	require.Greater(t, refused, pairs/50)
	require.Less(t, refused, pairs/2)
}

// canonical holds a list against what [Part.Spans] promises.
func canonical(t *testing.T, list []Span) {
	t.Helper()
	for i, s := range list {
		require.Less(t, s.Start, s.Stop)
		if i > 0 {
			before := list[i-1]
			require.LessOrEqual(t, before.Stop, s.Start)
			require.False(t, before.Stop == s.Start && before.Local+before.size() == s.Local, "%v and %v touch", before, s)
		}
	}
}

// TestRedistribute moves random tensors between random layouts, element by element. Every element is written once and
// with the right value, and the rule gives the same sources.
func TestRedistribute(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for done := 0; done < pairs; {
		shape := anyShape(r)
		from, to := anyLayout(r, len(shape), true, r.IntN(2)), anyLayout(r, len(shape), false, 100)
		if uneven(from, shape) || uneven(to, shape) {
			continue
		}
		done++
		redistribute(t, from, to, shape)
	}
}

// redistribute moves a tensor and returns what each target has received.
func redistribute(t *testing.T, from, to Layout, shape []int64) (all []*Moves) {
	t.Helper()
	plan, err := Redistribute(from, to, shapeOf(t, shape))
	require.NoError(t, err)
	src := map[stepvan.Rank]*array{}
	for i := range from.Mesh.Size() {
		a := filled(naive(from, shape, i), shape)
		src[from.Mesh.Rank(i)] = &a
	}
	for target := range to.Mesh.Size() {
		m := new(Moves)
		require.NoError(t, plan.Assign(target, from.Sources(target), m))
		want := naive(to, shape, target)
		dst := empty(want)
		for i := range m.Len() {
			v := m.At(i)
			write(t, &v, src[v.Source], &dst)
			sameCopy(t, from, target, v.Source)
		}
		require.Equal(t, filled(want, shape).values, dst.values, "%s to %s of %v, target %d", from, to, shape, target)
		require.EqualValues(t, len(dst.values), m.Elems())
		maximal(t, m)
		byPart(t, from, to, shape, target, m)
		all = append(all, m)
	}
	return all
}

// sameCopy holds a source against the rule MeshOrder: it has the coordinates of index target mod size where the source
// is replicated.
func sameCopy(t *testing.T, from Layout, target int, source stepvan.Rank) {
	t.Helper()
	index := int(source)
	if from.Mesh.Ranks != nil {
		index = slices.Index(from.Mesh.Ranks, source)
	}
	got, want := from.Mesh.Coordinates(index), from.Mesh.Coordinates(target%from.Mesh.Size())
	for i, p := range from.Placements {
		if p.Kind == Replicated {
			require.Equal(t, want[i], got[i], "%s, target %d, source %d", from, target, source)
		}
	}
}

// byPart compares with the moves for a part that is given by its spans alone.
func byPart(t *testing.T, from, to Layout, shape []int64, target int, want *Moves) {
	t.Helper()
	p, err := to.Part(shapeOf(t, shape), target)
	require.NoError(t, err)
	d, err := from.divide(shapeOf(t, shape), to.outermost())
	require.NoError(t, err)
	var m Moves
	require.NoError(t, d.Assign(&p, from.Sources(target), &m))
	require.True(t, slices.Equal(want.heads, m.heads))
	require.True(t, slices.Equal(want.boxes, m.boxes))
}

// TestAnyParts gives a division to parts in any order.
func TestAnyParts(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for done := 0; done < pairs; {
		shape := anyShape(r)
		from := anyLayout(r, len(shape), true, 0)
		if uneven(from, shape) {
			continue
		}
		done++
		p := anyPart(t, r, shape)
		d, err := from.Divide(shapeOf(t, shape))
		require.NoError(t, err)
		var m Moves
		require.NoError(t, d.Assign(&p, from.Sources(done), &m))
		var lists [][]int64
		for d := range shape {
			lists = append(lists, indicesOf(&p, d))
		}
		dst := empty(lists)
		for i := range m.Len() {
			v := m.At(i)
			index := int(v.Source)
			if from.Mesh.Ranks != nil {
				index = slices.Index(from.Mesh.Ranks, v.Source)
			}
			a := filled(naive(from, shape, index), shape)
			write(t, &v, &a, &dst)
		}
		require.Equal(t, filled(lists, shape).values, dst.values)
		maximal(t, &m)
	}
}

// TestOverlap holds the boxes of two parts in any order against the elements that both have.
func TestOverlap(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for range pairs {
		shape := anyShape(r)
		src, dst := anyPart(t, r, shape), anyPart(t, r, shape)
		var m Moves
		require.NoError(t, m.Overlap(&src, &dst, 7))
		var from, to [][]int64
		for d := range shape {
			from, to = append(from, indicesOf(&src, d)), append(to, indicesOf(&dst, d))
		}
		source, got, want := filled(from, shape), empty(to), filled(to, shape)
		for i := range m.Len() {
			v := m.At(i)
			require.EqualValues(t, 7, v.Source)
			write(t, &v, &source, &got)
		}
		for i, v := range want.values {
			if !slices.Contains(source.values, v) {
				want.values[i] = -1
			}
		}
		require.Equal(t, want.values, got.values)
		maximal(t, &m)
	}
}

// TestHolders takes destinations from parts that overlap. Either each element is written once, or the error is right in
// that one is missing.
func TestHolders(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	whole, short := 0, 0
	for done := range pairs {
		shape := anyShape(r)
		var all []Holder
		src := map[stepvan.Rank]*array{}
		for k := range 1 + r.IntN(6) {
			p := anyPart(t, r, shape)
			if r.IntN(6) == 0 {
				var err error
				p, err = Whole(shapeOf(t, shape))
				require.NoError(t, err)
			}
			all = append(all, Holder{stepvan.Rank(k), &p})
			var lists [][]int64
			for d := range shape {
				lists = append(lists, indicesOf(&p, d))
			}
			a := filled(lists, shape)
			src[stepvan.Rank(k)] = &a
		}
		h, err := NewHolders(all)
		require.NoError(t, err)
		p := anyPart(t, r, shape)
		var lists [][]int64
		for d := range shape {
			lists = append(lists, indicesOf(&p, d))
		}
		dst, want := empty(lists), filled(lists, shape)
		var m Moves
		err = h.Assign(&p, stepvan.Rank(r.IntN(12)), done, &m)
		held := !slices.ContainsFunc(want.values, func(v int64) bool {
			for _, a := range src {
				if slices.Contains(a.values, v) {
					return false
				}
			}
			return true
		})
		if !held {
			require.ErrorIs(t, err, stepvan.ErrInvalid)
			require.ErrorContains(t, err, "missing")
			short++
			continue
		}
		require.NoError(t, err)
		whole++
		for i := range m.Len() {
			v := m.At(i)
			write(t, &v, src[v.Source], &dst)
		}
		require.Equal(t, want.values, dst.values)
	}
	require.Greater(t, whole, pairs/10)
	require.Greater(t, short, pairs/10)
}

// TestPartitions moves random parameters between random partitions of Megatron-core.
func TestPartitions(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	for range pairs {
		shape := anyShape(r)
		from, fromBlocks := anyPartition(r, shape)
		to, toBlocks := anyPartition(r, shape)
		src, err := from.Divide(shapeOf(t, shape))
		require.NoError(t, err)
		dst, err := to.Divide(shapeOf(t, shape))
		require.NoError(t, err)
		plan, err := NewPlanner(src, dst)
		require.NoError(t, err)
		for number := range to.Parts() {
			var m Moves
			require.NoError(t, plan.Assign(number, Sources{}, &m))
			want := naivePartition(to, toBlocks, shape, number)
			got := empty(want)
			for i := range m.Len() {
				v := m.At(i)
				a := filled(naivePartition(from, fromBlocks, shape, int(v.Source)), shape)
				write(t, &v, &a, &got)
			}
			require.Equal(t, filled(want, shape).values, got.values, "%+v to %+v of %v", from, to, shape)
			maximal(t, &m)
		}
	}
}

// anyPartition makes sizes only where blocks divide evenly. blocks cut the whole dimension.
func anyPartition(r *rand.Rand, shape []int64) (p Partition, blocks []int64) {
	p = Partition{Dim: r.IntN(len(shape)), Stride: r.IntN(4), World: r.IntN(5)}
	if len(shape) > 1 && r.IntN(3) == 0 {
		p.ExpertDim, p.ExpertWorld = (p.Dim+1)%len(shape), r.IntN(4)
	}
	world := int64(max(p.World, 1))
	if n := shape[p.Dim]; p.World > 1 && n%world == 0 && r.IntN(2) == 0 {
		p.Sizes = []int64{}
		for left := n / world; left > 0 || len(p.Sizes) == 0; {
			size := r.Int64N(left + 1)
			p.Sizes, blocks = append(p.Sizes, size), append(blocks, size*world)
			left -= size
		}
	}
	return p, blocks
}

// naivePartition follows the spec: N = W * stride segments, rank r has r, r + W and so on; blocks each by itself.
func naivePartition(p Partition, blocks []int64, shape []int64, number int) [][]int64 {
	lists := make([][]int64, len(shape))
	for d, n := range shape {
		lists[d] = indices(n)
	}
	world, rank := max(p.World, 1), number%max(p.World, 1)
	if p.ExpertWorld > 1 {
		lists[p.ExpertDim] = chunks(lists[p.ExpertDim], p.ExpertWorld)[number/world]
	}
	if blocks == nil {
		blocks = []int64{shape[p.Dim]}
	} else {
		p.Stride = 1
	}
	whole, at := lists[p.Dim], int64(0)
	lists[p.Dim] = []int64{}
	for _, size := range blocks {
		segments := chunks(whole[at:at+size], world*max(p.Stride, 1))
		for k := rank; k < len(segments); k += world {
			lists[p.Dim] = append(lists[p.Dim], segments[k]...)
		}
		at += size
	}
	return lists
}

// TestReductions holds the groups of partial layouts against what their definition says.
func TestReductions(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 14))
	for range 1000 {
		l := anyLayout(r, 1, true, 0)
		index := r.IntN(l.Mesh.Size())
		got := l.Reduction(index)
		var want []int
		if l.CheckTarget() != nil {
			mine := l.Mesh.Coordinates(index)
			for i := range l.Mesh.Size() {
				c, same := l.Mesh.Coordinates(i), true
				for k, p := range l.Placements {
					same = same && (p.Kind == Reducible || c[k] == mine[k])
				}
				if same {
					want = append(want, i)
				}
			}
		}
		require.Equal(t, want, got.Members, "%s, index %d", l, index)
		require.Equal(t, l.CheckTarget() != nil, slices.Contains(got.Members, index))
		total := 1
		for _, n := range got.Counts {
			total *= n
		}
		require.Equal(t, max(len(want), 1), total)
		require.Len(t, got.Ops, len(got.Counts))
	}
}
