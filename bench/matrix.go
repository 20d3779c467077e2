package bench

import "github.com/stepvan/stepvan/internal/errs"

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
	for _, workload := range values(m.Workloads, m.Base.Workload) {
		for _, workers := range values(m.Workers, m.Base.Workers) {
			for _, servers := range values(m.Servers, m.Base.Servers) {
				o := m.Base
				o.Workload, o.Workers, o.Servers = workload, workers, servers
				p = append(p, m.sizes(o)...)
			}
		}
	}
	return p, nil
}

// sizes lists a group for each size.
func (m Matrix) sizes(o Options) (p Plan) {
	for i, push := range values(m.Pushes, o.Push) {
		o.Push = push
		switch {
		case len(m.Pulls) == 1:
			o.Pull = m.Pulls[0]
		case len(m.Pulls) > 1:
			o.Pull = m.Pulls[i]
		}
		p = append(p, m.group(o))
	}
	return p
}

// group lists the measurements of one size, which alternate.
func (m Matrix) group(o Options) (group []Options) {
	for _, van := range values(m.Vans, o.Van) {
		for _, progress := range values(m.Progresses, o.Progress) {
			for _, nodes := range values(m.Nodes, o.Nodes) {
				o.Van, o.Progress, o.Nodes = van, progress, nodes
				group = append(group, o)
			}
		}
	}
	return group
}

func values[T any](list []T, one T) []T {
	if len(list) > 0 {
		return list
	}
	return []T{one}
}
