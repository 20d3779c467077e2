package layout

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/tensor"
)

// TestEncodings writes and reads random descriptions, one behind the other.
func TestEncodings(t *testing.T) {
	r := rand.New(rand.NewPCG(15, 16))
	for range pairs {
		shape := anyShape(r)
		part, l := anyPart(t, r, shape), anyLayout(r, len(shape), true, 0)
		partition, _ := anyPartition(r, shape)
		b := part.Append(nil)
		b, err := l.Append(b)
		require.NoError(t, err)
		b, err = partition.Append(b)
		require.NoError(t, err)

		gotPart, b, err := ReadPart(b)
		require.NoError(t, err)
		require.True(t, part.Equal(&gotPart))
		require.Equal(t, part.Local(), gotPart.Local())
		gotLayout, b, err := ReadLayout(b)
		require.NoError(t, err)
		require.Equal(t, l, gotLayout)
		gotPartition, b, err := ReadPartition(b)
		require.NoError(t, err)
		require.Equal(t, partition, gotPartition)
		require.Empty(t, b)
	}
	_, err := Layout{MeshOf(2), nil}.Append(nil)
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	_, err = Partition{World: -2}.Append(nil)
	require.ErrorIs(t, err, stepvan.ErrInvalid)
}

// TestSizes holds the descriptions of real parameters to their budget: 60 to 150 bytes with name, type and rank.
func TestSizes(t *testing.T) {
	const others = len("model.layers.46.mlp.experts.127.down_proj.weight") + 6
	fsdp := on([]int{32, 8}, StridedShard(0, 8), Shard(0))
	part, err := fsdp.Part(tensor.ShapeOf(16384, 5120), 100)
	require.NoError(t, err)
	strided, err := Partition{World: 8, Stride: 64}.Part(tensor.ShapeOf(16384, 5120), 3)
	require.NoError(t, err)
	layout, err := fsdp.Append(nil)
	require.NoError(t, err)
	mamba, err := Partition{World: 4, Sizes: []int64{4096, 4096, 256, 256, 32}}.Append(nil)
	require.NoError(t, err)
	for name, b := range map[string][]byte{"part": part.Append(nil), "strided": strided.Append(nil), "layout": layout, "mamba": mamba} {
		require.LessOrEqual(t, len(b)+others, 150, name)
	}
	require.Len(t, strided.Spans(0), 64)
}

// hostile are encodings that make nothing, and the reason.
func TestHostileBytes(t *testing.T) {
	part := func(b ...byte) error { _, _, err := ReadPart(b); return err }
	layout := func(b ...byte) error { _, _, err := ReadLayout(b); return err }
	partition := func(b ...byte) error { _, _, err := ReadPartition(b); return err }
	huge := []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f} // the largest extent
	for _, x := range []struct {
		err  error
		want string
	}{
		{part(), "not the beginning of one"},
		{part(codeLayout), "not the beginning of one (got d2, want d1)"},
		{part(codePart), "dimensions: cut off"},
		{part(codePart, 9), "dimensions: out of range (got 9, want 0 to 8)"},
		{part(append([]byte{codePart, 1}, bytes.Repeat([]byte{0xff}, 11)...)...), "extent: cut off or too long"},
		{part(append([]byte{codePart, 1}, append(huge, 0)...)...), "too long"},
		{part(codePart, 1, 4, 9), "runs of spans: out of range (got 9, want 0 to 0)"},
		{part(codePart, 1, 4, 1, 0, 0, 1, 0), "spans of a run: out of range (got 0"},
		{part(codePart, 1, 4, 1, 1, 5, 1, 0), "gap: out of range"},
		{part(codePart, 1, 4, 1, 1, 0, 0, 0), "length of a span: out of range"},
		{part(codePart, 1, 4, 1, 1, 0, 1, 20), "jump: out of range"},
		{part(codePart, 1, 4, 1, 1, 0, 1, 1), "a span lies outside of the part (got offset -1)"},
		{part(codePart, 1, 4, 1, 1, 0, 1, 2), "do not fill the part"},
		{part(codePart, 1, 4, 1, 3, 0, 2, 0), "a span ends behind its dimension"},
		{part(codePart, 1, 0, 1, 1, 0, 1, 0), "a span ends behind its dimension"},
		{part(codePart, 1, 4, 1, 0xff, 0xff, 0x7f, 0, 1, 0), "spans of a run: out of range"},
		{part(codePart, 1, 4, 1, 1, 0, 1, 0x80), "jump: cut off"},
		{layout(codePart), "not the beginning of one"},
		{layout(codeLayout, 9), "dimensions of the mesh: out of range"},
		{layout(codeLayout, 1, 0), "extent of the mesh: out of range"},
		{layout(codeLayout, 1, 2, 9), "kind of a placement: out of range"},
		{layout(codeLayout, 1, 2, 1, 8), "dimension: out of range"},
		{layout(codeLayout, 1, 2, 2, 0, 0), "factor: out of range"},
		{layout(codeLayout, 1, 2, 3, 5), "reduction: out of range"},
		{layout(codeLayout, 1, 2, 0, 3, 1), "ranks: out of range (got 3, want 0 to 2)"},
		{layout(codeLayout, 1, 2, 0, 2, 1, 1), "names rank 1 twice"},
		{layout(codeLayout, 2, 0x80, 0x80, 2, 0x80, 0x80, 2, 0, 0, 0), "too large"},
		{partition(codeLayout), "not the beginning of one"},
		{partition(codePartition, 8), "partition_dim: out of range"},
		{partition(codePartition, 0, 1, 2, 0, 0, 5, 1), "partition_sizes: out of range"},
		{partition(append([]byte{codePartition, 0, 1, 2, 0, 0, 1}, huge...)...), "partition_sizes[0] is out of range"},
	} {
		var protocol *stepvan.ProtocolError
		require.ErrorAs(t, x.err, &protocol, x.want)
		require.ErrorContains(t, x.err, x.want)
	}
}

// FuzzRead reads descriptions of a peer. What is accepted is valid, has a plan, and is the same when it is written and
// read again.
func FuzzRead(f *testing.F) {
	for i, dims := range [][]int64{{}, {5}, {64, 64}, {16, 0, 3}} {
		l := on([]int{2, 2}, Replicate(), Partial(Sum))
		if len(dims) > 0 {
			l = on([]int{2, 2}, StridedShard(0, 2), Shard(0))
		}
		p, err := Whole(tensor.ShapeOf(dims...))
		if i == 2 {
			p, err = l.Part(tensor.ShapeOf(dims...), 1)
		}
		if err != nil {
			f.Fatal(err)
		}
		f.Add(p.Append(nil))
		l.Mesh.Ranks = []stepvan.Rank{7, 300, 1, 0}
		b, err := l.Append(nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	b, err := Partition{Dim: 1, Stride: 2, World: 4, Sizes: []int64{3, 5}, ExpertWorld: 2}.Append(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte{codePart, 1, 4, 2, 1, 2, 1, 2, 1, 0, 1, 3})
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, _, err := ReadPart(b); err == nil {
			checkRead(t, &p)
		}
		if l, rest, err := ReadLayout(b); err == nil {
			again, err := l.Append(nil)
			same, _, err2 := ReadLayout(again)
			if err != nil || err2 != nil || !reflect.DeepEqual(l, same) || len(rest) > len(b) {
				t.Fatalf("%s is %s when it is read again: %v, %v", l, same, err, err2)
			}
			_, _ = l.Divide(tensor.ShapeOf(64, 64)) // it may be refused, and must not take long
		}
		if p, _, err := ReadPartition(b); err == nil {
			again, err := p.Append(nil)
			same, _, err2 := ReadPartition(again)
			if err != nil || err2 != nil || !reflect.DeepEqual(p, same) {
				t.Fatalf("%+v is %+v when it is read again: %v, %v", p, same, err, err2)
			}
			_, _ = p.Divide(tensor.ShapeOf(64, 64))
		}
	})
}

// checkRead holds a part that a peer has described against what others rely on.
func checkRead(t *testing.T, p *Part) {
	t.Helper()
	again, rest, err := ReadPart(p.Append(nil))
	if err != nil || len(rest) > 0 || !p.Equal(&again) {
		t.Fatalf("%v is %v when it is read again: %v", p, again, err)
	}
	for d := range p.Shape().Rank() {
		stop := int64(0)
		for _, s := range p.Spans(d) {
			if s.Start < stop || s.Stop <= s.Start || s.Stop > p.Shape().Dim(d) || s.Local < 0 || s.Local+s.size() > p.Local().Dim(d) {
				t.Fatalf("dimension %d of %v: span %v", d, p, s)
			}
			stop = s.Stop
		}
	}
	whole, err := Whole(p.Shape())
	if err != nil {
		t.Fatal(err)
	}
	if boxes := len(p.spans); boxes > 64 {
		return // their product may be large
	}
	var m Moves
	if err := m.Overlap(&whole, p, 0); err != nil || m.Elems() != p.Elems() {
		t.Fatalf("%d of %d elements of %v: %v", m.Elems(), p.Elems(), p, err)
	}
}
