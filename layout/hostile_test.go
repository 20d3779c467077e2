package layout

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/tensor"
)

// reversed is a part with every element of the tensor, in spans of one element and in reverse order.
func reversed(t *testing.T, dims ...int64) *Part {
	t.Helper()
	lists := make([][]Span, len(dims))
	for d, n := range dims {
		for i := range n {
			lists[d] = append(lists[d], Span{i, i + 1, n - 1 - i})
		}
	}
	p, err := NewPart(tensor.ShapeOf(dims...), lists...)
	require.NoError(t, err)
	return &p
}

// Parts whose spans have more combinations than memory can hold are refused, and cost little.
func TestTooManyMoves(t *testing.T) {
	dst := reversed(t, 20_000, 20_000, 20_000)
	all := whole(t, dst.Shape())
	var m Moves
	for name, err := range map[string]error{
		"overlap":  m.Overlap(all, dst, 1),
		"division": on(nil).mustDivide(t, dst.Shape()).Assign(dst, Sources{Ranks: []stepvan.Rank{0}}, &m),
		"holders":  holdersOf(t, Holder{1, all}).Assign(dst, 2, 0, &m),
	} {
		require.ErrorIs(t, err, stepvan.ErrInvalid, name)
		require.ErrorContains(t, err, "too many moves between two parts", name)
	}
	require.Zero(t, m.Len())
	require.NoError(t, m.Overlap(all, reversed(t, 20_000, 20_000, 20_000).none(t), 1), "without elements in one dimension there are no moves")
	require.Zero(t, m.Len())
}

// Holders that split a destination so that the search for the rest takes too long are refused.
func TestTooManyBlocks(t *testing.T) {
	const n = 60
	dst := reversed(t, n, n)
	var odd []Span
	for i := range int64(n / 2) {
		odd = append(odd, Span{2*i + 1, 2*i + 2, i})
	}
	some, err := NewPart(dst.Shape(), odd, odd)
	require.NoError(t, err)
	h := holdersOf(t, Holder{1, &some}, Holder{2, whole(t, dst.Shape())})
	var m Moves
	require.NoError(t, h.Assign(dst, 3, 0, &m))
	require.EqualValues(t, n*n, m.Elems())
	err = h.assign(dst, 3, 0, &m, 10_000)
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	require.ErrorContains(t, err, "the holders split the destination into too many blocks")
}

func whole(t *testing.T, shape tensor.Shape) *Part {
	t.Helper()
	p, err := Whole(shape)
	require.NoError(t, err)
	return &p
}

func holdersOf(t *testing.T, all ...Holder) *Holders {
	t.Helper()
	h, err := NewHolders(all)
	require.NoError(t, err)
	return h
}

func (l Layout) mustDivide(t *testing.T, shape tensor.Shape) *Division {
	t.Helper()
	d, err := l.Divide(shape)
	require.NoError(t, err)
	return d
}

// none is the part without its elements of the last dimension.
func (p *Part) none(t *testing.T) *Part {
	t.Helper()
	last := p.Shape().Rank() - 1
	lists := make([][]Span, last+1)
	for d := range last {
		lists[d] = p.Spans(d)
	}
	q, err := NewPart(p.Shape(), lists...)
	require.NoError(t, err)
	return &q
}
