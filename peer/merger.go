package peer

import (
	"cmp"
	"slices"
	"sync"
	"unsafe"

	"github.com/stepvan/stepvan/internal/cast"
	"github.com/stepvan/stepvan/internal/strided"
	"github.com/stepvan/stepvan/tensor"
)

// merger merges what the receives of a plan bring to the same elements. The elements of a target are cut into units.
// For each unit it takes the sources one after the other, in the order of their moves. So the bits of the result depend
// neither on what comes first nor on the way. A run of it begins when all peers that bring something have offered.
//
// Sources in memory that this process sees are read there. The pieces of others wait in a slot, until all of a unit are
// there. There are slots for two units: one is merged while the other one comes.
type merger struct {
	plan    *Plan
	targets []target // those that need no slots first
	sources []mergeSource
	loops   []strided.Dim
	casts   []conversion
	edges   []*edge // that bring something
	task    task
	bytes   int64  // of all sources, as they travel
	local   int64  // of those, bytes that come from this process
	units   uint32 // of all targets
	seen    uint32 // of them, those that need no slots: the first ones
	slot    int64  // bytes of a slot

	// Under Peer.mu.
	waiting int                // edges that have not offered, of a run
	next    uint32             // units that are merged
	asked   uint32             // the first streamed unit whose pieces have not been asked for
	missing [pullsAhead]uint32 // pieces that have not come, by slot
	active  bool               // the task runs
	count   uint32             // units that the task is for
	region  *tensor.Region     // of the slots during a run, or
	slots   []byte
}

// target is a view that several moves come to.
type target struct {
	at             unsafe.Pointer // the first element
	elements       int64
	each           int64  // elements of a unit
	unit           uint32 // the first one
	first, sources uint32 // in merger.sources
	pulled         uint32 // of those, how many come in pieces
	loops          uint32 // where they begin
	rank           uint8
	mean           bool
	divide         cast.Kernel // of a mean
}

// mergeSource is a move that comes to a target.
type mergeSource struct {
	edge   *edge          // nil within this process
	theirs unsafe.Pointer // the first element; nil where its pieces are pulled
	move   uint32         // its number on the edge, where it is pulled
	cast   uint32
	offset int64  // of its pieces in a slot
	loops  uint32 // over both views, where this process sees both
	rank   uint8
}

const (
	// slotBytes is how large a slot is at most, while units have leastUnit elements or more.
	slotBytes = 4 << 20
	leastUnit = 4 << 10
	// scratchBytes is the memory for elements that are converted before they are merged.
	scratchBytes = 64 << 10
)

var scratches = sync.Pool{New: func() any { return new([scratchBytes]byte) }}

// mergeMove is a move of a draft that comes to a target.
type mergeMove struct {
	move   *Move
	mine   form
	how    conversion
	edge   *edge
	theirs unsafe.Pointer // nil where its pieces are pulled
	number uint32         // on the edge, where it is pulled
	nest   nest           // over both views, where this process sees both
}

// destination tells apart the views of receives.
type destination struct {
	at    uintptr
	merge Merge
	form  form
}

func destinationOf(m *Move) destination {
	return destination{uintptr(address(&m.View)), m.Merge, formOf(&m.View)}
}

// newMerger makes the merger of some moves.
func newMerger(pl *Plan, moves []mergeMove) (*merger, error) {
	groups := map[destination][]*mergeMove{}
	var order []destination
	for i := range moves {
		m := &moves[i]
		key := destinationOf(m.move)
		if groups[key] == nil {
			order = append(order, key)
		}
		groups[key] = append(groups[key], m)
	}
	slices.SortStableFunc(order, func(a, b destination) int { return cmp.Compare(pulledOf(groups[a]), pulledOf(groups[b])) })
	g := &merger{plan: pl}
	g.task.copy, g.task.done = g.mergeUnit, g.merged
	for _, key := range order {
		list := groups[key]
		slices.SortFunc(list, func(a, b *mergeMove) int {
			return cmp.Or(cmp.Compare(a.move.ID, b.move.ID), cmp.Compare(a.move.Peer, b.move.Peer))
		})
		if err := g.add(list); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// pulledOf is how many of the moves come in pieces.
func pulledOf(list []*mergeMove) (n uint32) {
	for _, m := range list {
		if m.theirs == nil {
			n++
		}
	}
	return n
}

// add appends a target with its moves, in their order.
func (g *merger) add(list []*mergeMove) (err error) {
	f := &list[0].mine
	n := nestOf(f)
	t := target{
		at: address(&list[0].move.View), elements: f.elements(), unit: g.units, pulled: pulledOf(list),
		first: uint32(len(g.sources)), sources: uint32(len(list)), loops: uint32(len(g.loops)), rank: uint8(n.rank),
	}
	if list[0].move.Merge == Avg {
		t.mean = true
		if t.divide, err = cast.NewDivision(f.dtype, len(list)); err != nil {
			return err
		}
	}
	g.loops = append(g.loops, n.loops()...)
	widest, width := int64(f.dtype.Size()), int64(0) // of an element, and of what is pulled for one
	for _, m := range list {
		widest = max(widest, int64(m.how.src.Size()))
		if m.theirs == nil {
			width += int64(m.how.wire.Size())
		}
	}
	t.each = chunkBytes / widest
	if width > 0 {
		t.each = min(t.each, max(leastUnit, slotBytes/width))
	}
	t.each = min(n.whole(t.each), t.elements)
	at := int64(0)
	for _, m := range list {
		s := mergeSource{edge: m.edge, theirs: m.theirs, move: m.number, offset: at, cast: uint32(indexOfCast(&g.casts, &m.how))}
		bytes := t.elements * int64(m.how.wire.Size())
		if m.theirs == nil {
			at += t.each * int64(m.how.wire.Size())
		} else {
			s.loops, s.rank = uint32(len(g.loops)), uint8(m.nest.rank)
			g.loops = append(g.loops, m.nest.loops()...)
		}
		g.bytes += bytes
		if m.edge == nil {
			g.local += bytes
		} else if !slices.Contains(g.edges, m.edge) {
			g.edges = append(g.edges, m.edge)
		}
		g.sources = append(g.sources, s)
	}
	g.slot = max(g.slot, at)
	g.units += uint32((t.elements + t.each - 1) / t.each)
	if t.pulled == 0 {
		g.seen = g.units
	}
	g.targets = append(g.targets, t)
	return nil
}

// begin begins a run. Under Peer.mu.
func (g *merger) begin() {
	g.waiting = len(g.edges)
	if g.waiting == 0 {
		g.start()
	}
}

// offered notes that an edge brings its elements. Under Peer.mu.
func (g *merger) offered() {
	if g.waiting--; g.waiting == 0 {
		g.start()
	}
}

// start begins to merge: all elements are available.
func (g *merger) start() {
	g.next, g.asked = 0, g.seen
	clear(g.missing[:])
	if g.slot > 0 && g.slots == nil {
		n := int(g.slot) * pullsAhead
		if region, err := g.plan.p.link.Memory().Get(n); err == nil {
			g.region, g.slots = region, region.Bytes()[:n]
		} else { // the pool is full
			g.slots = make([]byte, n)
		}
	}
	g.ask()
	g.run()
}

// giveBack gives the slots back. No peer writes to them.
func (g *merger) giveBack() {
	if g.region != nil {
		g.plan.p.link.Memory().Put(g.region)
	}
	g.region, g.slots = nil, nil
}

// ask asks for the pieces of the units that have a slot.
func (g *merger) ask() {
	for ; g.asked < g.units && g.asked < max(g.next, g.seen)+pullsAhead; g.asked++ {
		t := g.targetOf(g.asked)
		lo, hi := t.elementsOf(g.asked)
		g.missing[g.asked%pullsAhead] = t.pulled
		for i := t.first; i < t.first+t.sources; i++ {
			if s := &g.sources[i]; s.theirs == nil {
				q := pull{edge: s.edge, move: s.move, source: i, unit: g.asked, lo: lo, hi: hi}
				q.ask()
			}
		}
	}
}

// landed notes that a piece of a unit is there.
func (g *merger) landed(unit uint32) {
	if g.missing[unit%pullsAhead]--; g.missing[unit%pullsAhead] == 0 {
		g.run()
	}
}

// run has the units merged of which everything is there.
func (g *merger) run() {
	last := max(g.next, g.seen)
	for last < g.asked && g.missing[last%pullsAhead] == 0 {
		last++
	}
	if g.active || last == g.next {
		return
	}
	g.active = true
	for _, e := range g.edges {
		e.busy++ // the views of its memory are in use
	}
	g.count = last - g.next
	g.plan.p.run(&g.task, int(g.count), min(g.bytes, int64(g.count)*chunkBytes))
}

// merged ends the merge of some units. Movers call it.
func (g *merger) merged() {
	p := g.plan.p
	p.mu.Lock()
	defer p.unlock()
	g.active = false
	for _, e := range g.edges {
		e.busy--
		e.checkQuiet()
	}
	if g.plan.record == nil || g.task.stop.Load() {
		g.plan.checkQuiet()
		return
	}
	if g.next += g.count; g.next == g.units {
		g.giveBack()
		for _, e := range g.edges {
			e.made(stepMerge)
		}
		g.plan.finished()
		return
	}
	g.ask()
	g.run()
}

// targetOf finds the target of a unit.
func (g *merger) targetOf(unit uint32) *target {
	lo, hi := 0, len(g.targets)-1
	for lo < hi {
		if mid := (lo + hi + 1) / 2; g.targets[mid].unit <= unit {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	return &g.targets[lo]
}

// elementsOf are the numbers of the elements of a unit.
func (t *target) elementsOf(unit uint32) (lo, hi int64) {
	lo = int64(unit-t.unit) * t.each
	return lo, min(lo+t.each, t.elements)
}

// slotOf is where the pieces of a unit wait.
func (g *merger) slotOf(unit uint32) []byte {
	return g.slots[int64(unit%pullsAhead)*g.slot:][:g.slot]
}

// wire is how many bytes an element of a source has on its way.
func (g *merger) wire(s *mergeSource) int64 { return int64(g.casts[s.cast].wire.Size()) }

// nest returns loops of the table.
func (g *merger) nest(at uint32, rank uint8) (n nest) {
	n.rank = copy(n.dims[:], g.loops[at:at+uint32(rank)])
	return n
}

// mergeUnit merges unit i of those that the task is for. Movers call it.
func (g *merger) mergeUnit(i int) {
	unit := g.next + uint32(i) // next does not change during the task
	t := g.targetOf(unit)
	lo, hi := t.elementsOf(unit)
	for k := range t.sources {
		s := &g.sources[t.first+k]
		c := &g.casts[s.cast]
		n := g.nest(s.loops, s.rank)
		switch {
		case s.theirs == nil && k == 0:
			g.mergeStream(t, &c.in, g.wire(s), lo, hi, g.slotOf(unit)[s.offset:])
		case s.theirs == nil:
			g.mergeStream(t, &c.next, g.wire(s), lo, hi, g.slotOf(unit)[s.offset:])
		case k == 0:
			applyBoxes(&c.all, &n, lo, hi, t.at, s.theirs)
		case c.wire == c.src:
			applyBoxes(&c.next, &n, lo, hi, t.at, s.theirs)
		default:
			g.mergeConverted(t, s, lo, hi)
		}
	}
	if t.mean {
		n := g.nest(t.loops, t.rank).within()
		applyBoxes(&t.divide, &n, lo, hi, t.at, t.at)
	}
}

// applyBoxes has a kernel work on elements of a nest.
func applyBoxes(k *cast.Kernel, n *nest, lo, hi int64, to, from unsafe.Pointer) {
	for b := n.between(lo, hi); b.next(); {
		w := k.Walk(b.walk()...)
		k.Apply(&w, unsafe.Add(to, b.to), unsafe.Add(from, b.from))
	}
}

// mergeStream has a kernel work on elements lo to hi of a target. Those of the source have so many bytes, and lie one
// behind the other in from.
func (g *merger) mergeStream(t *target, k *cast.Kernel, size, lo, hi int64, from []byte) {
	n := g.nest(t.loops, t.rank).fromStream(size)
	for b := n.between(lo, hi); b.next(); {
		w := k.Walk(b.walk()...)
		k.Apply(&w, unsafe.Add(t.at, b.to), unsafe.Add(pointer(from), b.from-lo*size))
	}
}

// mergeConverted merges elements that are converted before, as they are where they travel.
func (g *merger) mergeConverted(t *target, s *mergeSource, lo, hi int64) {
	c := &g.casts[s.cast]
	size := int64(c.wire.Size())
	n := g.nest(s.loops, s.rank).toStream(size)
	scratch := scratches.Get().(*[scratchBytes]byte)
	for lo < hi {
		end := min(hi, lo+scratchBytes/size)
		for b := n.between(lo, end); b.next(); {
			w := c.out.Walk(b.walk()...)
			c.out.Apply(&w, unsafe.Add(pointer(scratch[:]), b.to-lo*size), unsafe.Add(s.theirs, b.from))
		}
		g.mergeStream(t, &c.next, size, lo, end, scratch[:])
		lo = end
	}
	scratches.Put(scratch)
}
