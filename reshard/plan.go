package reshard

import (
	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/layout"
	"github.com/stepvan/stepvan/tensor"
)

// Plan is what one rank sends and receives. It does not change, and any goroutine may read it.
type Plan struct {
	Rank    stepvan.Rank
	Batches int // at least 1, and the same at every rank
	// Sources and Destinations are the parameters that the operations name by number.
	Sources, Destinations []Tensor
	Sends, Recvs          Ops
}

// Tensor is a parameter of a plan.
type Tensor struct {
	Name, Resolved string
	DType          tensor.DType // of the parameter
	Wire           tensor.DType // of what travels: that of the source
	Shape          tensor.Shape // of what this rank has
}

// Op is one box that a rank sends or receives.
type Op struct {
	Tensor int          // number of the parameter in the plan
	Peer   stepvan.Rank // the other side, which may be the rank itself
	// Task is the same number on both sides. It has the rank of the destination in its upper 32 bits. So a destination
	// that is added does not change those of others.
	Task  uint64
	Batch int
	Rank  int // the number of dimensions
	// Mine and Theirs are where the box begins, in what each side has. They count elements of each dimension.
	Mine, Theirs, Extent [tensor.MaxRank]int64
	// Whole has the bits of the dimensions that neither side divides.
	Whole uint8
}

// Ops is a list of operations. It is a table without pointers: an operation on a matrix takes 80 bytes.
type Ops struct {
	heads []opHead
	boxes []int64 // offsets of this side, offsets of the other side, and extents of each operation
}

// opHead is one entry of the table.
type opHead struct {
	task   uint64
	box    int64 // where its numbers begin
	peer   int32
	tensor int32
	batch  int32
	dims   uint8
	whole  uint8
}

// Len is the number of operations.
func (o *Ops) Len() int { return len(o.heads) }

// At is operation i.
func (o *Ops) At(i int) (op Op) {
	h := &o.heads[i]
	op = Op{Tensor: int(h.tensor), Peer: stepvan.Rank(h.peer), Task: h.task, Batch: int(h.batch), Rank: int(h.dims), Whole: h.whole}
	numbers := o.boxes[h.box : h.box+3*int64(h.dims)]
	copy(op.Mine[:], numbers[:h.dims])
	copy(op.Theirs[:], numbers[h.dims:2*h.dims])
	copy(op.Extent[:], numbers[2*h.dims:])
	return op
}

func (o *Ops) add(op *Op) {
	o.heads = append(o.heads, opHead{op.Task, int64(len(o.boxes)), int32(op.Peer), int32(op.Tensor), int32(op.Batch), uint8(op.Rank), op.Whole})
	o.boxes = append(o.boxes, op.Mine[:op.Rank]...)
	o.boxes = append(o.boxes, op.Theirs[:op.Rank]...)
	o.boxes = append(o.boxes, op.Extent[:op.Rank]...)
}

// Plan is the plan of one rank. A rank without a roster has an empty plan.
func (p *Planner) Plan(rank stepvan.Rank) (*Plan, error) {
	if err := checkRank(rank); err != nil {
		return nil, err
	}
	w := schedule{p: p, out: &Plan{Rank: rank, Batches: p.batches}, member: -1}
	if m, ok := p.member(rank); ok {
		w.member = m
		w.sending()
	}
	for m := range p.members {
		w.destination(m)
	}
	return w.out, nil
}

// schedule goes through the operations of all ranks, and keeps those of one rank.
type schedule struct {
	p       *Planner
	out     *Plan
	member  int     // -1: the rank has no roster
	mine    []int32 // of each name, its place among the sources of the rank, and 1
	sources []int32 // of each name, its number in the plan, and 1
	sends   []bool  // of each route, whether the rank is one of its sources
}

// sending finds what the rank may have to send.
func (w *schedule) sending() {
	w.mine, w.sources = make([]int32, len(w.p.names)), make([]int32, len(w.p.names))
	for i, id := range w.p.ids[w.member][0] {
		w.mine[id] = int32(i + 1)
	}
	w.sends = make([]bool, len(w.p.routes))
	for i, r := range w.p.routes {
		for k := range r.moves.Len() {
			w.sends[i] = w.sends[i] || r.moves.At(k).Source == w.out.Rank
		}
	}
}

// destination keeps what the rank sends to a member, or receives if it is that member.
func (w *schedule) destination(m int) {
	p, c := w.p, w.p.members[m]
	task := uint64(c.rank) << 32
	for i, id := range p.ids[m][1] {
		number := p.chosen[m][i]
		r := p.routes[number]
		if m == w.member {
			w.receive(i, id, r, task)
		}
		if w.member >= 0 && w.sends[number] {
			w.send(c.rank, id, r, task)
		}
		task += uint64(r.moves.Len())
	}
}

func (w *schedule) batch(id int32) int {
	if w.p.batch == nil {
		return 0
	}
	return int(w.p.batch[id])
}

// receive appends the operations of the rank's parameter i.
func (w *schedule) receive(i int, id int32, r *route, task uint64) {
	c := w.p.members[w.member]
	s := &c.sides[1]
	f := c.forms[s.forms[i]]
	w.out.Destinations = append(w.out.Destinations, Tensor{s.names[i], s.resolved[i], f.DType, r.wire, f.Shape})
	for k := range r.moves.Len() {
		v := r.moves.At(k)
		w.out.Recvs.add(&Op{
			Tensor: len(w.out.Destinations) - 1, Peer: v.Source, Task: task + uint64(k), Batch: w.batch(id), Rank: v.Rank,
			Mine: v.Dst, Theirs: v.Src, Extent: v.Extent, Whole: r.whole,
		})
	}
}

// send appends the operations of parameter id whose source is the rank.
func (w *schedule) send(to stepvan.Rank, id int32, r *route, task uint64) {
	source := w.source(id)
	for k := range r.moves.Len() {
		v := r.moves.At(k)
		if v.Source == w.out.Rank {
			w.out.Sends.add(&Op{
				Tensor: source, Peer: to, Task: task + uint64(k), Batch: w.batch(id), Rank: v.Rank,
				Mine: v.Src, Theirs: v.Dst, Extent: v.Extent, Whole: r.whole,
			})
		}
	}
}

// source is the number of a source in the plan.
func (w *schedule) source(id int32) int {
	if w.p.holders.of[id] < 0 { // tied: the embedding stands for it
		id = w.p.embedding
	}
	if w.sources[id] == 0 {
		c := w.p.members[w.member]
		s, i := &c.sides[0], w.mine[id]-1
		f := c.forms[s.forms[i]]
		w.out.Sources = append(w.out.Sources, Tensor{s.names[i], s.resolved[i], f.DType, f.DType, f.Shape})
		w.sources[id] = int32(len(w.out.Sources))
	}
	return int(w.sources[id]) - 1
}

// Box is what the operation copies, from the source to the destination. sends says whether it is one of the sends.
func (o *Op) Box(sends bool) layout.Box {
	if sends {
		return layout.Box{Src: o.Mine, Dst: o.Theirs, Extent: o.Extent}
	}
	return layout.Box{Src: o.Theirs, Dst: o.Mine, Extent: o.Extent}
}

// CheckShape refuses a tensor that the plan was not made for.
func (t *Tensor) CheckShape(d tensor.DType, shape tensor.Shape) error {
	if d != t.DType || shape != t.Shape {
		return errs.Invalid("reshard: parameter %q is not what the plan was made for (got %s%s, want %s%s): make a new plan at every rank",
			t.Name, d, shape, t.DType, t.Shape)
	}
	return nil
}
