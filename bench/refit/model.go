package refit

import (
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/reshard"
	"github.com/stepvan/stepvan/tensor"
)

// parameter is a tensor of the whole model.
type parameter struct {
	name   string
	shape  tensor.Shape
	dim    int // that tensor parallel ranks divide
	expert int // which expert of its layer; -1: none
}

// parameters lists those of the whole model, in the same order at every rank.
func (s *Spec) parameters() (all []parameter) {
	if s.Moves > 0 {
		return s.vectors()
	}
	columns, matrices := s.columns(), int64(s.matricesOfLayer())
	rows := min(matrixBytes, s.Bytes/matrices) / (columns * elementBytes)
	rows = max(rows/s.rowUnit(), 1) * s.rowUnit()
	layers := max(s.Bytes/(rows*columns*elementBytes*matrices), 1)
	shape := tensor.ShapeOf(rows, columns)
	for l := range layers {
		for i := range dense {
			all = append(all, parameter{fmt.Sprintf("layers.%d.dense%d.weight", l, i), shape, s.Dim, -1})
		}
		for e := range s.experts() {
			all = append(all, parameter{fmt.Sprintf("layers.%d.experts.%d.weight", l, e), shape, s.Dim, e})
		}
	}
	return all
}

// vectors are parameters of which each source has MoveBytes bytes.
func (s *Spec) vectors() (all []parameter) {
	each := s.From.Tensor * s.To.Data // moves of a vector: each destination gets a piece of every source of its part
	shape := tensor.ShapeOf(int64(s.From.Tensor) * MoveBytes / elementBytes)
	for i := range (s.Moves + each - 1) / each {
		all = append(all, parameter{fmt.Sprintf("vectors.%d", i), shape, 0, -1})
	}
	return all
}

// local is the part of a parameter that a rank of a layout has. ok is false when it has none.
func (p *parameter) local(l Layout, rank, experts int) (first int64, shape tensor.Shape, ok bool) {
	t, e, _ := l.place(rank)
	if p.expert >= 0 && p.expert/(experts/l.Expert) != e {
		return 0, shape, false
	}
	dims := append([]int64(nil), p.shape.Dims()...)
	dims[p.dim] /= int64(l.Tensor)
	return int64(t) * dims[p.dim], tensor.ShapeOf(dims...), true
}

// plannerRank is the number of a rank in rosters. Those of sources come first.
func (s *Spec) plannerRank(destination bool, rank int) stepvan.Rank {
	if destination {
		rank += s.From.Ranks()
	}
	return stepvan.Rank(rank)
}

// roster is what a rank of a side has, or wants.
func (s *Spec) roster(destination bool, rank int) reshard.Roster {
	l := s.From
	if destination {
		l = s.To
	}
	r := reshard.Roster{Rank: s.plannerRank(destination, rank)}
	list := &r.Sources
	if destination {
		list = &r.Destinations
	}
	groups := s.groups(destination, l, rank)
	for _, p := range s.parameters() {
		_, shape, ok := p.local(l, rank, s.experts())
		if !ok {
			continue
		}
		own := &reshard.Parallel{Divided: true, Dim: p.dim, Groups: groups}
		if p.expert >= 0 {
			own.Expert, own.Indexed, own.Experts = true, true, s.experts()
		} else {
			own.Groups.Expert = nil
		}
		*list = append(*list, reshard.Parameter{Name: p.name, Form: reshard.Form{DType: tensor.BFloat16, Shape: shape, Parallel: own}})
	}
	return r
}

// groups lists the parallel groups of a rank, as Megatron-core has them.
func (s *Spec) groups(destination bool, l Layout, rank int) (g reshard.Groups) {
	t, e, d := l.place(rank)
	member := func(t, e, d int) stepvan.Rank { return s.plannerRank(destination, l.rank(t, e, d)) }
	for i := range l.Tensor {
		g.Tensor = append(g.Tensor, member(i, e, d))
	}
	for i := range l.Expert {
		g.Expert = append(g.Expert, member(t, i, d))
	}
	for k := range l.Data {
		for i := range l.Expert {
			g.Data = append(g.Data, member(t, i, k))
		}
	}
	return g
}

// plan plans for one rank.
func (s *Spec) plan(destination bool, rank int) (*reshard.Plan, error) {
	var rosters [][]byte
	for _, side := range []bool{false, true} {
		l := s.From
		if side {
			l = s.To
		}
		for i := range l.Ranks() {
			r := s.roster(side, i)
			b, err := r.Append(nil)
			if err != nil {
				return nil, err
			}
			rosters = append(rosters, b)
		}
	}
	p, err := reshard.NewPlanner(rosters, reshard.Options{World: s.From.Ranks() + s.To.Ranks()})
	if err != nil {
		return nil, err
	}
	return p.Plan(s.plannerRank(destination, rank))
}
