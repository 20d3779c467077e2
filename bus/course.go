package bus

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/cast"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/layout"
	"github.com/stepvan/stepvan/peer"
	"github.com/stepvan/stepvan/tensor"
)

// course is one direction of a leg: its plans and its rounds. A partial source has two plans. The first one brings the
// values of a group to the rank that reduces them, and the second one ships what they have become.
type course struct {
	gather *peer.Plan // nil where this agent reduces nothing and has no values for others
	ship   *peer.Plan // nil for a direction that cannot be run
	sums   []sum
	memory tensor.Tensor // of the sums
	used   int64         // bytes of it

	// Under Agent.mu.
	asked     map[int]uint64 // rounds that the ranks of this agent have asked for, by index in roster.all
	announced map[stepvan.Rank]uint64
	begun     uint64
	done      uint64
	busy      bool
	waiters   []waiter
}

// sum is a box that this agent reduces. The plan merges what the members of a group have into its values, by the first
// step of the reduction. The other steps merge these into the first one, which is the result.
type sum struct {
	values    []tensor.Strided
	reduction reduction
}

// values is how many values the first step leaves.
func (r *reduction) values() int { return len(r.members) / r.steps[0].count }

// waiter is a transfer that waits for a round.
type waiter struct {
	round    uint64
	transfer *pending
}

// planner makes the moves of one direction at one agent. All agents go through the routes in the same order, so the
// moves have the same numbers everywhere.
type planner struct {
	l        *leg
	c        *course
	from, to *side
	routes   map[tensor.Shape][]layout.Route
	number   uint64
	gather   moves
	ship     moves
	sent     map[int]bool // ranks that send something, or receive something, by index in roster.all
}

type moves struct{ sends, recvs []peer.Move }

// add adds a move to the plan where this agent is one of its ends.
func (m *moves) add(self stepvan.Rank, from, to *member, source, target *tensor.Strided, move peer.Move) {
	if from.agent == self {
		one := move
		one.Peer, one.View, one.Merge = to.agent, *source, peer.Overwrite
		m.sends = append(m.sends, one)
	}
	if to.agent == self {
		move.Peer, move.View = from.agent, *target
		m.recvs = append(m.recvs, move)
	}
}

// planCourse makes the plans of one direction.
func (l *leg) planCourse(d int) error {
	x := &planner{
		l: l, c: &l.courses[d], from: &l.r.sides[d], to: &l.r.sides[1-d],
		routes: map[tensor.Shape][]layout.Route{}, sent: map[int]bool{},
	}
	if err := x.reserve(d); err != nil {
		return err
	}
	for k := range l.forms {
		if err := x.tensor(k, l.forms[k].types[d], l.forms[k].types[1-d]); err != nil {
			return fmt.Errorf("tensor %d: %w", k, err)
		}
	}
	if err := x.signals(); err != nil {
		return err
	}
	name := fmt.Sprintf("bus %s %s %d %d", l.key.pair, l.key.batch, l.token, d)
	p := l.a.p
	var err error
	if len(x.gather.sends)+len(x.gather.recvs) > 0 {
		if x.c.gather, err = p.Plan(l.ctx, name+" reduce", x.gather.sends, x.gather.recvs); err != nil {
			return err
		}
	}
	x.c.ship, err = p.Plan(l.ctx, name, x.ship.sends, x.ship.recvs)
	return err
}

// routesOf plans one tensor.
func (x *planner) routesOf(k int) ([]layout.Route, error) {
	if x.from.layout == nil {
		return x.wholes(k), nil
	}
	shape := x.l.forms[k].shape
	if r, ok := x.routes[shape]; ok {
		return r, nil
	}
	r, err := Redistribute(*x.from.layout, *x.to.layout, shape)
	x.routes[shape] = r
	return r, err
}

// wholes are the routes of this agent's ranks for a tensor without layouts: from rank i to rank i. Each agent
// counts them all.
func (x *planner) wholes(k int) (all []layout.Route) {
	for i := range x.from.size {
		r := layout.Route{Source: stepvan.Rank(i), Targets: []layout.Landing{{Rank: stepvan.Rank(i)}}}
		for _, m := range []int{x.from.first + i, x.to.first + i} {
			if p := x.l.places[m]; p != nil {
				r.Rank = copy(r.Extent[:], p.views[k].Dims())
			}
		}
		all = append(all, r)
	}
	return all
}

// tensor adds the moves of one tensor.
func (x *planner) tensor(k int, from, to tensor.DType) error {
	routes, err := x.routesOf(k)
	if err != nil {
		return err
	}
	wire, err := wireType(from, to)
	if err != nil {
		return err
	}
	label := fmt.Sprintf("tensor %d of pair %s", k, x.l.key.pair)
	for i := range routes {
		r := &routes[i]
		s := x.from.first + int(r.Source)
		source, err := x.source(k, s, r, label)
		if err != nil {
			return err
		}
		for _, t := range r.Targets {
			at := x.to.first + int(t.Rank)
			x.sent[s], x.sent[at] = true, true
			target, err := x.box(k, at, t.Dst, r)
			if err != nil {
				return err
			}
			x.number++
			m := peer.Move{ID: x.number, Wire: wire, Label: label}
			x.ship.add(x.l.a.self, &x.l.r.all[s], &x.l.r.all[at], &source, &target, m)
		}
	}
	return nil
}

// box is a box of a tensor of a rank. It is the zero view if this agent does not serve the rank.
func (x *planner) box(k, member int, at [tensor.MaxRank]int64, r *layout.Route) (v tensor.Strided, err error) {
	p := x.l.places[member]
	if p == nil {
		return v, nil
	}
	v = p.views[k]
	for d := range r.Rank {
		if v, err = v.Narrow(d, at[d], r.Extent[d]); err != nil {
			return v, err
		}
	}
	return v, nil
}

// source is what a route ships: a box of the source, or what that box becomes when it is reduced.
func (x *planner) source(k, member int, r *layout.Route, label string) (v tensor.Strided, err error) {
	if x.from.layout != nil {
		if group, ok := reductionOf(x.from.layout, int(r.Source)); ok {
			return x.reduce(k, member, r, &group, label)
		}
	}
	return x.box(k, member, r.Src, r)
}

// reduce adds the moves that bring the values of a box to the rank that reduces it.
func (x *planner) reduce(k, member int, r *layout.Route, group *reduction, label string) (result tensor.Strided, err error) {
	one := sum{reduction: *group}
	mine := x.l.places[member] != nil
	if mine {
		if one.values, err = x.take(k, member, r, group.values()); err != nil {
			return result, err
		}
		x.c.sums = append(x.c.sums, one)
		result = one.values[0]
	}
	for i, index := range group.members {
		from := x.from.first + index
		value, err := x.box(k, from, r.Src, r)
		if err != nil {
			return result, err
		}
		var target tensor.Strided
		if mine {
			target = one.values[i%group.values()]
		}
		x.number++
		x.gather.add(x.l.a.self, &x.l.r.all[from], &x.l.r.all[member], &value, &target,
			peer.Move{ID: x.number, Merge: merges[group.steps[0].op].plan, Label: label})
	}
	return result, nil
}

// align is where the values of a box begin.
const align = 64

// valueBytes is how much memory a value of a box takes.
func valueBytes(d tensor.DType, r *layout.Route) int64 {
	n := int64(d.Size())
	for _, extent := range r.Extent[:r.Rank] {
		n *= extent
	}
	return (n + align - 1) &^ (align - 1)
}

// reserve makes the memory for all values that this agent reduces.
func (x *planner) reserve(d int) error {
	if x.from.layout == nil || x.from.targetable() {
		return nil
	}
	var total int64
	for k := range x.l.forms {
		routes, err := x.routesOf(k)
		if err != nil {
			return fmt.Errorf("tensor %d: %w", k, err)
		}
		for i := range routes {
			if x.l.places[x.from.first+int(routes[i].Source)] != nil {
				group, _ := reductionOf(x.from.layout, int(routes[i].Source))
				total += int64(group.values()) * valueBytes(x.l.forms[k].types[d], &routes[i])
			}
		}
	}
	if total == 0 {
		return nil
	}
	var err error
	if x.l.a.opt.Memory != nil {
		x.c.memory, err = x.l.a.opt.Memory.Empty(tensor.Uint8, total)
		return err
	}
	words := make([]uint64, total/8) // aligned for any type
	x.c.memory, err = tensor.FromPointer(unsafe.Pointer(unsafe.SliceData(words)), tensor.Uint8, tensor.ShapeOf(total), words)
	return err
}

// take takes memory for the values of a box.
func (x *planner) take(k, member int, r *layout.Route, count int) (values []tensor.Strided, err error) {
	d := x.l.places[member].views[k].DType()
	shape := tensor.ShapeOf(r.Extent[:r.Rank]...)
	for range count {
		m := &x.c.memory
		t, err := tensor.FromRegion(m.Region(), m.Offset()+x.c.used, d, shape)
		if err != nil {
			return nil, err
		}
		values = append(values, t.Strided())
		x.c.used += valueBytes(d, r)
	}
	return values, nil
}

// signals adds a move without elements for each rank that has no other one. So each waits for a rank of the other side,
// hears of its rounds, and learns of its death.
func (x *planner) signals() error {
	none, err := tensor.FromSlice([]byte{})
	if err != nil {
		return err
	}
	v := none.Strided()
	for _, s := range [][2]*side{{x.from, x.to}, {x.to, x.from}} {
		for i := range s[0].size {
			at, other := s[0].first+i, s[1].first+i%s[1].size
			x.number++
			if x.sent[at] || x.l.r.all[at].agent == x.l.r.all[other].agent {
				continue
			}
			if s[0] == x.to {
				at, other = other, at
			}
			x.ship.add(x.l.a.self, &x.l.r.all[at], &x.l.r.all[other], &v, &v, peer.Move{ID: x.number, Label: "a signal"})
		}
	}
	return nil
}

// merges are what plans and package cast call the operations of reductions.
var merges = map[layout.Op]struct {
	plan peer.Merge
	cast cast.Merge
}{
	layout.Sum: {peer.Sum, cast.Sum}, layout.Max: {peer.Max, cast.Max}, layout.Min: {peer.Min, cast.Min},
	layout.Product: {peer.Product, cast.Product},
}

// reduce makes one value of those that the plan has brought.
func (s *sum) reduce() error {
	list := s.values
	for _, step := range s.reduction.steps[1:] {
		n := len(list) / step.count
		for k := range n {
			for i := 1; i < step.count; i++ {
				if err := cast.Copy(&list[k], &list[k+i*n], merges[step.op].cast); err != nil {
					return err
				}
			}
		}
		list = list[:n]
	}
	if s.reduction.divisor > 1 {
		return cast.Divide(&list[0], s.reduction.divisor)
	}
	return nil
}

// close ends the plans. They have failed, or the leg has: nothing begins another run.
func (c *course) close() {
	for _, p := range []*peer.Plan{c.gather, c.ship} {
		if p != nil {
			_ = p.Close(context.Background()) // the context does not end
		}
	}
	if c.memory.Check() == nil {
		_ = c.memory.Region().Close()
	}
	c.sums, c.memory = nil, tensor.Tensor{}
}

// failAfter ends the transfers that wait for later rounds. It returns those that wait for nothing else. Under mu.
func (c *course) failAfter(round uint64, err error) (over []*pending) {
	rest := c.waiters[:0]
	for _, w := range c.waiters {
		switch {
		case w.round <= round:
			rest = append(rest, w)
		case w.transfer.end(err):
			over = append(over, w.transfer)
		}
	}
	clear(c.waiters[len(rest):])
	c.waiters = rest
	return over
}

// errNoPlan is the error of a direction that cannot be run.
func (l *leg) errNoPlan(d int) error {
	to := &l.r.sides[1-d]
	return errs.Invalid("pair %q: %s cannot receive, since it is partial (%s): transfer in the other direction", l.key.pair, to.name, to.layout)
}
