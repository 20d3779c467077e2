package reshard

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/layout"
	"github.com/stepvan/stepvan/tensor"
)

// model is one parallel layout: tensor parallel ranks vary fastest, then experts, then copies.
type model struct {
	first              int // rank
	tp, ep, pp, copies int
}

func (m model) size() int { return m.tp * m.ep * m.pp * m.copies }

func (m model) rank(t, e, p, c int) stepvan.Rank {
	return stepvan.Rank(m.first + ((p*m.copies+c)*m.ep+e)*m.tp + t)
}

// place is the inverse of rank.
func (m model) place(r stepvan.Rank) (t, e, p int, ok bool) {
	n := int(r) - m.first
	if n < 0 || n >= m.size() {
		return 0, 0, 0, false
	}
	return n % m.tp, n / m.tp % m.ep, n / m.tp / m.ep / m.copies, true
}

func (m model) groups(r stepvan.Rank) (g Groups) {
	t, e, p, _ := m.place(r)
	c := (int(r) - m.first) / m.tp / m.ep % m.copies
	for k := range m.tp {
		g.Tensor = append(g.Tensor, m.rank(k, e, p, c))
	}
	for k := range m.ep {
		g.Expert = append(g.Expert, m.rank(t, k, p, c))
	}
	for k := range m.copies {
		for i := range m.ep {
			g.Data = append(g.Data, m.rank(t, i, p, k))
		}
	}
	return g
}

// weight is a parameter of a model.
type weight struct {
	name   string // with %d for the number of an expert
	shape  []int64
	stage  int // of layers, from 0 to 1; both sides have the stage that holds it
	split  bool
	dim    int
	stride int
	blocks []int64
	expert int // how many experts; 0: none
	fused  bool
	buffer bool
	dtype  tensor.DType
}

func (w *weight) partition(m model) layout.Partition {
	if !w.split {
		return layout.Partition{}
	}
	p := layout.Partition{Dim: w.dim, Stride: w.stride, World: m.tp}
	for _, b := range w.blocks {
		p.Sizes = append(p.Sizes, b/int64(m.tp))
	}
	return p
}

// at is what a rank has of the weight, by name, with the place of each element in the whole.
func (w *weight) at(t *testing.T, m model, r stepvan.Rank) (all []held) {
	tp, ep, pp, ok := m.place(r)
	if !ok || w.stage%m.pp != pp {
		return nil
	}
	f := Form{DType: tensor.Float32, Buffer: w.buffer, Parallel: &Parallel{Divided: w.split, Dim: w.dim, Stride: w.stride, Groups: m.groups(r)}}
	if w.dtype != 0 {
		f.DType = w.dtype
	}
	partition := w.partition(m)
	f.Parallel.Sizes = partition.Sizes
	number := tp
	if !w.split {
		number = 0
	}
	f.Parallel.Expert, f.Parallel.Experts = w.expert > 0 && m.ep > 1, w.expert
	if !f.Parallel.Expert {
		f.Parallel.Groups.Expert = nil
	}
	if w.fused && m.ep > 1 {
		partition.ExpertWorld = m.ep
		number += ep * max(partition.World, 1)
	}
	whole, err := tensor.MakeShape(w.shape...)
	require.NoError(t, err)
	part, err := partition.Part(whole, number)
	require.NoError(t, err)
	f.Shape = part.Local()
	if w.expert == 0 || w.fused {
		return []held{{Parameter{Name: w.name, Form: f}, filled(&part, w.name)}}
	}
	f.Parallel.Indexed = f.Parallel.Expert
	for k := range w.expert / m.ep {
		n := Names{Experts: w.expert, EP: m.ep, Place: ep}
		resolved, _, err := n.Resolve(fmt.Sprintf(w.name, k), true)
		require.NoError(t, err)
		all = append(all, held{Parameter{Name: fmt.Sprintf(w.name, k), Resolved: resolved, Form: f}, filled(&part, resolved)})
	}
	return all
}

// held is a parameter of a rank with its elements.
type held struct {
	Parameter
	values map[[tensor.MaxRank]int64]string
}

// filled names every element of a part by its place in the whole.
func filled(p *layout.Part, name string) map[[tensor.MaxRank]int64]string {
	all := map[[tensor.MaxRank]int64]string{{}: ""}
	dims := p.Shape().Rank()
	for d := range dims {
		next := map[[tensor.MaxRank]int64]string{}
		for at, text := range all {
			for _, s := range p.Spans(d) {
				for i := range s.Stop - s.Start {
					to := at
					to[d] = s.Local + i
					next[to] = text + fmt.Sprint(",", s.Start+i)
				}
			}
		}
		all = next
	}
	for at := range all {
		all[at] = name + all[at]
	}
	return all
}

// world is the ranks of both models.
type world struct {
	t       *testing.T
	sources map[stepvan.Rank][]held
	wants   map[stepvan.Rank][]held
	rosters [][]byte
}

func newWorld(t *testing.T, src, dst model, weights ...weight) *world {
	t.Helper()
	w := &world{t: t, sources: map[stepvan.Rank][]held{}, wants: map[stepvan.Rank][]held{}}
	last := max(src.first+src.size(), dst.first+dst.size())
	for r := range stepvan.Rank(last) {
		for i := range weights {
			w.sources[r] = append(w.sources[r], weights[i].at(t, src, r)...)
			w.wants[r] = append(w.wants[r], weights[i].at(t, dst, r)...)
		}
		w.rosters = append(w.rosters, w.roster(r))
	}
	return w
}

func (w *world) roster(r stepvan.Rank) []byte {
	roster := Roster{Rank: r}
	for _, h := range w.sources[r] {
		roster.Sources = append(roster.Sources, h.Parameter)
	}
	for _, h := range w.wants[r] {
		roster.Destinations = append(roster.Destinations, h.Parameter)
	}
	b, err := roster.Append(nil)
	require.NoError(w.t, err)
	return b
}

// run plans for all ranks, moves the elements, and checks that each destination has all of its own.
func (w *world) run(o Options) map[stepvan.Rank]*Plan {
	w.t.Helper()
	p, err := NewPlanner(w.rosters, o)
	require.NoError(w.t, err)
	plans := map[stepvan.Rank]*Plan{}
	type edge struct {
		from, to stepvan.Rank
		task     uint64
		batch    int
		box      layout.Box
	}
	sent, got := map[edge]bool{}, map[edge]bool{}
	for r := range stepvan.Rank(len(w.rosters)) {
		plan, err := p.Plan(r)
		require.NoError(w.t, err)
		plans[r] = plan
		for i := range plan.Sends.Len() {
			op := plan.Sends.At(i)
			e := edge{r, op.Peer, op.Task, op.Batch, op.Box(true)}
			require.False(w.t, sent[e])
			sent[e] = true
		}
		for i := range plan.Recvs.Len() {
			op := plan.Recvs.At(i)
			e := edge{op.Peer, r, op.Task, op.Batch, op.Box(false)}
			require.False(w.t, got[e])
			got[e] = true
		}
	}
	require.Equal(w.t, sent, got, "sends and receives")
	sources := map[sending]*Tensor{}
	for r, plan := range plans {
		for i := range plan.Sends.Len() {
			op := plan.Sends.At(i)
			sources[sending{r, op.Peer, op.Task}] = &plan.Sources[op.Tensor]
		}
	}
	for r, plan := range plans {
		w.receive(plan, r, sources)
	}
	return plans
}

// sending names one operation.
type sending struct {
	from, to stepvan.Rank
	task     uint64
}

func find(all []held, name string) *held {
	i := slices.IndexFunc(all, func(h held) bool { return h.Name == name })
	if i < 0 {
		return nil
	}
	return &all[i]
}

// receive does the copies of one destination.
func (w *world) receive(plan *Plan, r stepvan.Rank, sources map[sending]*Tensor) {
	w.t.Helper()
	landed := map[string]map[[tensor.MaxRank]int64]string{}
	for i := range plan.Recvs.Len() {
		op := plan.Recvs.At(i)
		to := plan.Destinations[op.Tensor]
		from := sources[sending{op.Peer, r, op.Task}]
		if landed[to.Name] == nil {
			landed[to.Name] = map[[tensor.MaxRank]int64]string{}
		}
		src := find(w.sources[op.Peer], from.Name)
		require.NotNil(w.t, src)
		require.Equal(w.t, src.DType, to.Wire)
		each(op.Rank, op.Extent, func(at [tensor.MaxRank]int64) {
			here, there := at, at
			for d := range op.Rank {
				here[d] += op.Mine[d]
				there[d] += op.Theirs[d]
			}
			value, ok := src.values[there]
			if _, twice := landed[to.Name][here]; !ok || twice {
				require.Fail(w.t, "a box leaves its source, or an element landed twice")
			}
			landed[to.Name][here] = value
		})
	}
	for _, h := range w.wants[r] {
		want := h.values
		if len(want) == 0 {
			require.Empty(w.t, landed[h.Name])
			continue
		}
		require.Equal(w.t, want, landed[h.Name], "%s of rank %d", h.Name, r)
	}
}

func each(dims int, extent [tensor.MaxRank]int64, f func([tensor.MaxRank]int64)) {
	var at [tensor.MaxRank]int64
	for d := range dims {
		if extent[d] == 0 {
			return
		}
	}
	for {
		f(at)
		d := dims - 1
		for ; d >= 0; d-- {
			if at[d]++; at[d] < extent[d] {
				break
			}
			at[d] = 0
		}
		if d < 0 {
			return
		}
	}
}
