package strided

import "unsafe"

// The order of a walk follows from its loops, the innermost one first. So a walk is a stream of elements: its runs, one
// after the other. A stream can be made of a view and turned into a view, a part at a time.

// Loops returns the loops around a run, outermost first. The caller must not write to the slice.
func (w *Walk) Loops() []Dim { return w.dims[:w.rank] }

// Elements returns the size of an element in the destination and in the source, and how many are in a run.
func (w *Walk) Elements() (to, from, run int64) { return w.to, w.from, w.run }

// Restore makes a walk again of what [Walk.Elements] and [Walk.Loops] have returned.
func Restore(to, from, run int64, loops []Dim) (w Walk) {
	w.to, w.from, w.run = to, from, run
	w.rank = copy(w.dims[:], loops)
	return w
}

// Gather is the walk from the source to a stream, in the order of w. The stream has elements of so many bytes.
func (w *Walk) Gather(size int64) Walk {
	g := *w
	g.to = size
	step := w.run * size
	for i := w.rank - 1; i >= 0; i-- {
		g.dims[i].To = step
		step *= g.dims[i].Extent
	}
	g.join()
	return g
}

// Scatter is the walk to the destination from a stream, which has the order of w and elements of so many bytes.
func (w *Walk) Scatter(size int64) Walk {
	s := *w
	s.from = size
	step := w.run * size
	for i := w.rank - 1; i >= 0; i-- {
		s.dims[i].From = step
		step *= s.dims[i].Extent
	}
	s.join()
	return s
}

// AppendSources appends the memory that w copies from, in its order. from is the first element of the view. Memory
// that touches is one slice. Budget: 0 allocations, except for the list.
func (w *Walk) AppendSources(list [][]byte, from unsafe.Pointer) [][]byte {
	g := w.Gather(w.from)
	var strides [MaxRank]int64
	for i := range g.rank {
		strides[i] = g.dims[i].From
	}
	return g.appendRuns(list, from, g.run*g.from, &strides)
}

// AppendDestinations appends the memory that w copies to, in its order. to is the first element of the view. Memory
// that touches is one slice. Budget: 0 allocations, except for the list.
func (w *Walk) AppendDestinations(list [][]byte, to unsafe.Pointer) [][]byte {
	s := w.Scatter(w.to)
	var strides [MaxRank]int64
	for i := range s.rank {
		strides[i] = s.dims[i].To
	}
	return s.appendRuns(list, to, s.run*s.to, &strides)
}

// appendRuns appends the runs of one side. strides has the strides of the loops at that side. A function in its place
// would put the walk on the heap.
func (w *Walk) appendRuns(list [][]byte, base unsafe.Pointer, run int64, strides *[MaxRank]int64) [][]byte {
	if run == 0 {
		return list
	}
	var at [MaxRank]int64
	for offset := int64(0); ; {
		list = append(list, unsafe.Slice((*byte)(unsafe.Add(base, offset)), run))
		i := w.rank - 1
		for ; i >= 0; i-- {
			extent := w.dims[i].Extent
			if at[i]++; at[i] < extent {
				offset += strides[i]
				break
			}
			offset -= (extent - 1) * strides[i]
			at[i] = 0
		}
		if i < 0 {
			return list
		}
	}
}

// Part is a part of a walk. It is a walk of its own, which begins at other places.
type Part struct {
	Walk
	To, From int64 // from the first element of each view, in bytes
	At       int64 // how many elements come before it
}

// Parts are a walk cut in parts, in the order of the walk. The zero value has none.
type Parts struct {
	walk  Walk
	loop  int   // the loop that is cut; Walk.rank means the run
	inner int64 // elements in a step of that loop
	steps int64 // of that loop in a part
	each  int64 // parts of that loop
	n     int
}

// Cut cuts the walk in parts of at most limit elements.
func (w *Walk) Cut(limit int64) Parts {
	p := Parts{walk: *w, loop: w.rank, inner: 1, steps: limit, each: (w.run + limit - 1) / limit}
	if w.run == 0 {
		return Parts{}
	}
	if w.run <= limit {
		p.cutLoops(limit)
	}
	p.n = int(p.each)
	for _, d := range w.dims[:p.loop] {
		p.n *= int(d.Extent)
	}
	return p
}

// cutLoops finds the loop that is cut: the innermost one that does not fit.
func (p *Parts) cutLoops(limit int64) {
	p.inner = p.walk.run
	for p.loop--; p.loop >= 0; p.loop-- {
		extent := p.walk.dims[p.loop].Extent
		if p.inner*extent > limit {
			p.steps = limit / p.inner
			p.each = (extent + p.steps - 1) / p.steps
			return
		}
		p.inner *= extent
	}
	p.loop, p.each = 0, 1
	p.steps = 0 // nothing is cut
}

// Len is the number of parts.
func (p *Parts) Len() int { return p.n }

// At is part i. Budget: 0 allocations.
func (p *Parts) At(i int) (part Part) {
	part.Walk = p.walk
	if p.steps == 0 {
		return part
	}
	turn, k := int64(i)/p.each, int64(i)%p.each
	first := k * p.steps
	extent := p.extent()
	n := min(p.steps, extent-first)
	part.At = (turn*extent + first) * p.inner
	for j := p.loop - 1; j >= 0; j-- {
		d := &p.walk.dims[j]
		part.To += turn % d.Extent * d.To
		part.From += turn % d.Extent * d.From
		turn /= d.Extent
	}
	if p.loop == p.walk.rank {
		part.To, part.From = part.To+first*p.walk.to, part.From+first*p.walk.from
		part.Walk = Walk{run: n, to: p.walk.to, from: p.walk.from}
		return part
	}
	d := p.walk.dims[p.loop]
	part.To, part.From = part.To+first*d.To, part.From+first*d.From
	part.rank = copy(part.dims[:], p.walk.dims[p.loop:p.walk.rank])
	clear(part.dims[part.rank:])
	if part.dims[0].Extent = n; n == 1 {
		part.rank--
		copy(part.dims[:], part.dims[1:])
		part.dims[part.rank] = Dim{}
	}
	return part
}

// extent is how many steps the loop has that is cut.
func (p *Parts) extent() int64 {
	if p.loop == p.walk.rank {
		return p.walk.run
	}
	return p.walk.dims[p.loop].Extent
}
