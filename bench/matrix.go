package bench

import (
	"github.com/stepvan/stepvan/bench/work"
	"github.com/stepvan/stepvan/internal/errs"
)

// Matrix is all combinations of several values of some options. An empty list means the value of
// Base. Measurements that differ only in van, progress and nodes alternate.
type Matrix struct {
	Base       Options
	Workloads  []Workload
	Vans       []Van
	Progresses []string
	Nodes      []Nodes
	Workers    []int
	Servers    []int
	Pushes     []Size
	Pulls      []Size // one for each of Pushes, or for all
	Thinks     []work.Times
}

// SweepSizes lists the sizes of a sweep, from 8 B to 1 GiB.
func SweepSizes() (sizes []Size) {
	for s := smallBytes; s < 1<<30; s *= 8 {
		sizes = append(sizes, s)
	}
	return append(sizes, 1<<30)
}

// Plan lists the combinations.
func (m Matrix) Plan() (p Plan, err error) {
	if len(m.Pulls) > 1 && len(m.Pulls) != len(m.Pushes) {
		return nil, errs.Invalid("--pull has %d sizes and --push %d: write as many, one, or none", len(m.Pulls), len(m.Pushes))
	}
	all := []Options{m.Base}
	all = combine(all, m.Workloads, func(o *Options, _ int, w Workload) { o.Workload = w })
	all = combine(all, m.Workers, func(o *Options, _, n int) { o.Workers = n })
	all = combine(all, m.Servers, func(o *Options, _, n int) { o.Servers = n })
	if len(m.Pulls) == 1 {
		all = combine(all, m.Pulls, func(o *Options, _ int, s Size) { o.Pull = s })
	}
	all = combine(all, m.Pushes, func(o *Options, i int, s Size) {
		if o.Push = s; len(m.Pulls) > 1 {
			o.Pull = m.Pulls[i]
		}
	})
	all = combine(all, m.Thinks, func(o *Options, _ int, t work.Times) { o.Work.Think = t })
	for _, o := range all {
		group := combine([]Options{o}, m.Vans, func(o *Options, _ int, v Van) { o.Van = v })
		group = combine(group, m.Progresses, func(o *Options, _ int, s string) { o.Progress = s })
		p = append(p, combine(group, m.Nodes, func(o *Options, _ int, n Nodes) { o.Nodes = n }))
	}
	return p, nil
}

// combine sets each of the values in a copy of each of the options. Without values the options stay.
func combine[T any](all []Options, values []T, set func(o *Options, i int, value T)) (out []Options) {
	if len(values) == 0 {
		return all
	}
	for _, o := range all {
		for i, v := range values {
			set(&o, i, v)
			out = append(out, o)
		}
	}
	return out
}
