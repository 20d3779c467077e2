package reshard

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/layout"
	"github.com/stepvan/stepvan/tensor"
)

// example is a roster with every kind of form.
func example(t testing.TB) *Roster {
	part, err := layout.NewPart(tensor.ShapeOf(8, 3), []layout.Span{{Start: 1, Stop: 3}, {Start: 5, Stop: 6, Local: 2}}, []layout.Span{{Stop: 3}})
	require.NoError(t, err)
	groups := Groups{Tensor: []stepvan.Rank{2, 3}, Data: []stepvan.Rank{1, 3}, Expert: []stepvan.Rank{3, 7}}
	return &Roster{
		Rank: 3,
		Sources: []Parameter{
			{"a.weight", "a.weight", Form{DType: tensor.Float32, Shape: tensor.ShapeOf(4, 5)}},
			{"a.bias", "a.bias", Form{DType: tensor.Float32, Shape: tensor.ShapeOf(4, 5)}},
			{"layers.0.w", "layers.12.w", Form{DType: tensor.BFloat16, Shape: tensor.ShapeOf(4), Parallel: &Parallel{Divided: true, Stride: 2, Groups: groups}}},
			{"layers.0.e.weight0", "layers.12.e.weight2", Form{
				DType: tensor.BFloat16, Shape: tensor.ShapeOf(6, 0),
				Parallel: &Parallel{Divided: true, Dim: 1, Stride: 1, Sizes: []int64{4, 0, 2}, Expert: true, Indexed: true, Experts: 4, Groups: groups},
			}},
		},
		Destinations: []Parameter{
			{"part", "part", Form{DType: tensor.Int8, Shape: tensor.ShapeOf(3, 3), Part: &part}},
			{"scalar", "scalar", Form{DType: tensor.Int64, Buffer: true}},
		},
	}
}

func TestRosterRoundTrip(t *testing.T) {
	for _, want := range []*Roster{example(t), {Rank: 0}, {Rank: maxRank, Destinations: example(t).Sources[:1]}} {
		b, err := want.Append(nil)
		require.NoError(t, err)
		got, err := ReadRoster(b)
		require.NoError(t, err)
		require.Equal(t, want, got)
		for n := range b {
			_, err := ReadRoster(b[:n])
			var broken *stepvan.ProtocolError
			require.ErrorAs(t, err, &broken, n)
		}
		_, err = ReadRoster(append(b, 0))
		require.ErrorContains(t, err, "1 bytes follow the end")
	}
}

// TestBytesOfARoster holds what a rank tells of a parameter to its budget.
func TestBytesOfARoster(t *testing.T) {
	var r Roster
	for i := range 1000 {
		p := Parameter{Name: fmt.Sprintf("decoder.layers.%d.mlp.linear_fc1.weight", i)}
		p.Resolved = fmt.Sprintf("decoder.layers.%d.mlp.linear_fc1.weight", i+1000)
		p.Form = Form{DType: tensor.BFloat16, Shape: tensor.ShapeOf(4096, 1024), Parallel: &Parallel{Divided: true, Groups: Groups{Tensor: make([]stepvan.Rank, 64)}}}
		r.Sources = append(r.Sources, p)
	}
	b, err := r.Append(nil)
	require.NoError(t, err)
	require.Less(t, len(b), 60*len(r.Sources))
}

// layoutForm is a form of a cell of a layout, which only programs in other languages write.
func layoutForm(t testing.TB, index uint64, l layout.Layout) []byte {
	b := []byte{0, 0, 0, byte(tensor.Float32), kindLayout << kindShift}
	b = appendShape(b, tensor.ShapeOf(2, 3))
	b = appendShape(binary.AppendUvarint(b, index), tensor.ShapeOf(4, 3))
	b, err := l.Append(b)
	require.NoError(t, err)
	return b
}

func rosterOfForm(form []byte) []byte {
	b := []byte{codeRoster, rosterVersion, 5, 0, 1}
	b = append(binary.AppendUvarint(b, uint64(len(form))), form...)
	return append(b, 1, 3, 0, 1, 'w', 0, 0, 0, 0, 0)
}

func TestFormsOfLayouts(t *testing.T) {
	rows := layout.Layout{Mesh: layout.MeshOf(2), Placements: []layout.Placement{layout.Shard(0)}}
	got, err := ReadRoster(rosterOfForm(layoutForm(t, 1, rows)))
	require.NoError(t, err)
	want, err := rows.Part(tensor.ShapeOf(4, 3), 1)
	require.NoError(t, err)
	require.Equal(t, []Parameter{{"w", "w", Form{DType: tensor.Float32, Shape: tensor.ShapeOf(2, 3), Part: &want}}}, got.Sources)
	partial := layout.Layout{Mesh: layout.MeshOf(2), Placements: []layout.Placement{layout.Partial(0)}}
	for _, x := range []struct {
		form []byte
		want string
	}{
		{layoutForm(t, 2, rows), "index is not one of mesh [2] (got 2"},
		{layoutForm(t, 1, partial), "cannot be partial"},
		{layoutForm(t, 1, rows)[:14], "layout"},
	} {
		_, err := ReadRoster(rosterOfForm(x.form))
		var broken *stepvan.ProtocolError
		require.ErrorAs(t, err, &broken)
		require.ErrorContains(t, err, x.want)
	}
}

// TestRostersThatAmplify has a few bytes that would describe much.
func TestRostersThatAmplify(t *testing.T) {
	comb := layout.Layout{Mesh: layout.MeshOf(2), Placements: []layout.Placement{layout.StridedShard(0, 1<<15)}}
	b := []byte{codeRoster, rosterVersion, 5, 0}
	var forms []byte
	const count = 100
	for i := range count {
		form := []byte{0, 0, 0, byte(tensor.Float32), kindLayout << kindShift}
		form = appendShape(form, tensor.ShapeOf(1<<20, int64(i)))
		form, err := comb.Append(appendShape(append(form, 0), tensor.ShapeOf(1<<21, int64(i))))
		require.NoError(t, err)
		forms = append(binary.AppendUvarint(forms, uint64(len(form))), form...)
	}
	b = append(binary.AppendUvarint(b, count), forms...)
	b = append(b, 0, 0, 0, 0, 0, 0)
	_, err := ReadRoster(b)
	require.ErrorContains(t, err, "the parts have too many spans")

	b = []byte{codeRoster, rosterVersion, 5, 0, 1, 6, 0, 0, 0, byte(tensor.Float32), 0, 0}
	names := append(binary.AppendUvarint([]byte{0}, maxName), bytes.Repeat([]byte("x"), maxName)...)
	const more = maxNames/maxName + 10
	for range more {
		names = append(binary.AppendUvarint(names, maxName), 0)
	}
	b = append(binary.AppendUvarint(b, more+1), binary.AppendUvarint(nil, uint64(len(names)))...)
	b = append(append(b, names...), 0)
	b = append(b, make([]byte, more+1+3)...)
	_, err = ReadRoster(b)
	require.ErrorContains(t, err, "the names are too long")
}

func FuzzReadRoster(f *testing.F) {
	b, err := example(f).Append(nil)
	require.NoError(f, err)
	f.Add(b)
	f.Add(rosterOfForm(layoutForm(f, 1, layout.Layout{Mesh: layout.MeshOf(2), Placements: []layout.Placement{layout.Shard(0)}})))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := ReadRoster(b)
		if err != nil {
			var broken *stepvan.ProtocolError
			require.ErrorAs(t, err, &broken)
			return
		}
		again, err := r.Append(nil)
		require.NoError(t, err)
		back, err := ReadRoster(again)
		require.NoError(t, err)
		require.Equal(t, r, back)
		if p, err := NewPlanner([][]byte{b}, Options{BatchBytes: 100}); err == nil {
			plan, err := p.Plan(r.Rank)
			require.NoError(t, err)
			read, err := ReadPlan(plan.Append(nil))
			require.NoError(t, err)
			require.Equal(t, plan.Append(nil), read.Append(nil))
		}
	})
}

// examplePlan has sends and receives in several batches.
func examplePlan(t testing.TB, weights ...weight) *Plan {
	at := &testing.T{}
	src, dst := model{tp: 2, ep: 1, pp: 1, copies: 1}, model{first: 1, tp: 1, ep: 2, pp: 1, copies: 1}
	p, err := NewPlanner(newWorld(at, src, dst, weights...).rosters, Options{BatchBytes: 2000})
	require.NoError(t, err)
	plan, err := p.Plan(1)
	require.NoError(t, err)
	require.NotZero(t, plan.Sends.Len())
	require.NotZero(t, plan.Recvs.Len())
	return plan
}

func TestPlanRoundTrip(t *testing.T) {
	want := examplePlan(t, transformer()...)
	b := want.Append([]byte("kept"))
	require.Equal(t, "kept", string(b[:4]))
	got, err := ReadPlan(b[4:])
	require.NoError(t, err)
	require.Equal(t, want, got)
	for n := range len(b) - 4 {
		_, err := ReadPlan(b[4 : 4+n])
		var broken *stepvan.ProtocolError
		require.ErrorAs(t, err, &broken, n)
	}
	b[20]++
	_, err = ReadPlan(b[4:])
	require.ErrorContains(t, err, "the checksum is wrong")
	b[11]++
	_, err = ReadPlan(b[4:])
	require.ErrorContains(t, err, "another version (got 2, want 1)")
}

// sealed is a plan with a checksum that is right.
func sealed(b []byte) []byte {
	return binary.LittleEndian.AppendUint32(b[:len(b)-4:len(b)-4], crc32.ChecksumIEEE(b[:len(b)-4]))
}

func FuzzReadPlan(f *testing.F) {
	f.Add(examplePlan(f, weight{name: "w", shape: []int64{4, 3}, split: true}).Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < 4 {
			return
		}
		p, err := ReadPlan(sealed(b))
		if err != nil {
			var broken *stepvan.ProtocolError
			require.ErrorAs(t, err, &broken)
			return
		}
		for i := range p.Recvs.Len() {
			op := p.Recvs.At(i)
			for d, n := range p.Destinations[op.Tensor].Shape.Dims() {
				require.True(t, op.Mine[d] >= 0 && op.Extent[d] >= 0 && op.Mine[d]+op.Extent[d] <= n)
			}
		}
		back, err := ReadPlan(p.Append(nil))
		require.NoError(t, err)
		require.Equal(t, p, back)
	})
}

// TestDamagedPlans changes one byte at a time, under a checksum that is right.
func TestDamagedPlans(t *testing.T) {
	good := examplePlan(t, weight{name: "w", shape: []int64{4, 3}, split: true}, weight{name: "v", shape: []int64{5}}).Append(nil)
	refused := 0
	for i := range len(good) - 4 {
		for _, x := range []byte{0x01, 0x80, 0xff} {
			b := bytes.Clone(good)
			b[i] ^= x
			if _, err := ReadPlan(sealed(b)); err != nil {
				var broken *stepvan.ProtocolError
				require.ErrorAs(t, err, &broken)
				refused++
			}
		}
	}
	require.Greater(t, refused, len(good))
}

// large are the rosters of a model with so many parameters. The source has two copies of tensor parallel groups of 8,
// and the destinations are in groups of 4.
func large(t testing.TB, parameters, targets int) [][]byte {
	src, dst := model{tp: 8, ep: 1, pp: 1, copies: 2}, model{first: 16, tp: 4, ep: 1, pp: 1, copies: targets / 4}
	shapes := []weight{
		{shape: []int64{4096, 2048}, split: true}, {shape: []int64{2048, 4096}, split: true, dim: 1},
		{shape: []int64{8192, 4096}, split: true, stride: 2}, {shape: []int64{4096}},
	}
	var all [][]byte
	for r := range stepvan.Rank(src.size() + dst.size()) {
		roster := Roster{Rank: r}
		m, side := src, &roster.Sources
		if r >= 16 {
			m, side = dst, &roster.Destinations
		}
		var forms []Form
		for i := range shapes {
			s := &shapes[i]
			whole, err := tensor.MakeShape(s.shape...)
			require.NoError(t, err)
			part, err := s.partition(m).Part(whole, 0)
			require.NoError(t, err)
			forms = append(forms, Form{DType: tensor.BFloat16, Shape: part.Local(), Parallel: &Parallel{Divided: s.split, Dim: s.dim, Stride: s.stride, Groups: m.groups(r)}})
		}
		for i := range parameters {
			*side = append(*side, Parameter{Name: fmt.Sprintf("decoder.layers.%d.experts.linear_fc%d.weight", i/len(forms), i), Form: forms[i%len(forms)]})
		}
		b, err := roster.Append(nil)
		require.NoError(t, err)
		all = append(all, b)
	}
	return all
}

// BenchmarkPlan plans 50,000 parameters for 64 destinations, and one rank's own plan. The budget of both is 2 s on one
// core, and 200 B an operation.
func BenchmarkPlan(b *testing.B) {
	rosters := large(b, 50_000, 64)
	b.ReportAllocs()
	ops, held := 0, 0
	for b.Loop() {
		p, err := NewPlanner(rosters, Options{})
		require.NoError(b, err)
		plan, err := p.Plan(20)
		require.NoError(b, err)
		other, err := p.Plan(1)
		require.NoError(b, err)
		for _, o := range []*Ops{&plan.Recvs, &other.Sends} {
			ops += o.Len()
			held += 32*cap(o.heads) + 8*cap(o.boxes)
		}
	}
	b.ReportMetric(float64(held)/float64(ops), "held-B/op")
	b.ReportMetric(float64(ops)/float64(b.N), "ops")
	runtime.KeepAlive(rosters)
}
