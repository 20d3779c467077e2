package peer

import (
	"cmp"
	"fmt"
	"unsafe"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/strided"
	"github.com/stepvan/stepvan/tensor"
)

// pair is what a plan moves between this peer and another.
type pair struct {
	draft        *draft
	rank         stepvan.Rank
	name         string
	sends, recvs []Move        // by ID
	forms        [2][]form     // of sends and of recvs, as the other peer is told
	proposed     bool          // the other peer has been told
	session      *link.Session // over which
	attempt      uint64        // of the other peer; 0 before its proposal
	theirs       [2][]proposed // its sends and receives
	options      PlanOptions   // that it has given
	hops         []*hop        // in chains, by source and number
	chained      [2][]int      // places of the sends and receives that are in chains
	out, in      *edge         // nil without moves
}

// proposed is a move at the other end.
type proposed struct {
	id    uint64
	wire  tensor.DType
	merge Merge
	form  form
}

// leastMove is how many bytes a move takes at least: its ID, and a form without dimensions.
const leastMove = 8 + 3

// moves reads a list of moves.
func (d *decoder) moves() []proposed {
	n := d.uvarint()
	if n > uint64(len(d.rest))/leastMove {
		d.fail("moves", "%d moves in %d bytes", n, len(d.rest))
		return nil
	}
	list := make([]proposed, 0, n)
	for range n {
		m := d.proposed()
		if d.err != nil {
			return nil
		}
		if len(list) > 0 && m.id <= list[len(list)-1].id {
			d.fail("moves", "move %d comes behind move %d", m.id, list[len(list)-1].id)
			return nil
		}
		list = append(list, m)
	}
	return list
}

// proposed reads a move.
func (d *decoder) proposed() (m proposed) {
	m.id, m.wire, m.merge = d.u64(), tensor.DType(d.u8()), Merge(d.u8())
	if m.wire != 0 && !m.wire.Valid() || m.merge >= mergeEnd {
		d.fail("moves", "move %d travels as type %d, and has merge %d", m.id, m.wire, m.merge)
	}
	if m.form = d.form(); m.merge != Overwrite {
		m.form.place = link.Target{} // the receiver merges by itself
	}
	return m
}

// fits compares the two proposals of a pair.
func (x *pair) fits() error {
	if x.draft.isSelf(x) {
		return nil // matchOwn compares
	}
	return cmp.Or(x.compareOptions(), x.compare(x.sends, x.theirs[1], true), x.compare(x.recvs, x.theirs[0], false))
}

// match makes the edges of a pair whose proposals fit each other.
func (x *pair) match() (err error) {
	if x.draft.isSelf(x) {
		return x.matchOwn()
	}
	sends, recvs := x.theirs[0], x.theirs[1]
	if err := x.openEdges(); err != nil {
		return err
	}
	defer x.closeFilling()
	if x.out != nil {
		err = x.fill(x.out, x.sends, x.forms[0], recvs)
	}
	if x.in != nil && err == nil {
		err = x.fill(x.in, x.recvs, x.forms[1], sends)
	}
	for i := 0; i < len(x.hops) && err == nil; i++ {
		err = x.fillHop(x.hops[i])
	}
	return err
}

// compare checks that each move at one end has its other end, and that both fit. sends says whose moves are mine.
func (x *pair) compare(mine []Move, theirs []proposed, sends bool) error {
	verb := "sends"
	if sends {
		verb = "receives"
	}
	for i := range max(len(mine), len(theirs)) {
		e := &MismatchError{Op: x.draft.op(), Peer: x.name}
		switch {
		case i >= len(theirs) || i < len(mine) && mine[i].ID < theirs[i].id:
			m := formOf(&mine[i].View)
			e.What, e.Mine, e.Theirs = mine[i].name(), m.String(), "nothing: it "+verb+" no move of this ID"
			return e
		case i >= len(mine) || theirs[i].id < mine[i].ID:
			e.What, e.Mine, e.Theirs = fmt.Sprintf("move %d", theirs[i].id), "no move of this ID", theirs[i].form.String()
			return e
		}
		if err := x.compareMove(&mine[i], &theirs[i], sends); err != nil {
			return err
		}
	}
	return nil
}

// compareMove checks that the two ends of a move fit each other.
func (x *pair) compareMove(m *Move, t *proposed, sends bool) error {
	mine := formOf(&m.View)
	e := &MismatchError{Op: x.draft.op(), Peer: x.name, What: m.name(), Mine: mine.String(), Theirs: t.form.String()}
	switch {
	case m.Wire != t.wire:
		e.same, e.Mine, e.Theirs = "Wire", e.Mine+wireText(m.Wire), e.Theirs+wireText(t.wire)
		return e
	case m.Wire == 0 && mine.dtype != t.form.dtype || mine.elements() != t.form.elements():
		return e
	case !sends && t.merge != Overwrite:
		return fmt.Errorf("%s: %s: %s: %w", x.draft.op(), x.name, m.name(), errSendMerges)
	}
	if _, err := m.conversion(t, sends); err != nil {
		return fmt.Errorf("%s: %s: %s: %w", x.draft.op(), x.name, m.name(), err)
	}
	return nil
}

func wireText(d tensor.DType) string {
	if d == 0 {
		return " without Wire"
	}
	return " with Wire " + d.String()
}

// conversion is how the elements of a move change.
func (m *Move) conversion(t *proposed, sends bool) (conversion, error) {
	if sends {
		return newConversion(m.View.DType(), m.Wire, t.form.dtype, t.merge)
	}
	return newConversion(t.form.dtype, m.Wire, m.View.DType(), m.Merge)
}

// openEdges gives the edges of a pair their numbers.
func (x *pair) openEdges() error {
	pl := x.draft.plan
	p := pl.p
	p.mu.Lock()
	defer p.unlock()
	if err := x.draft.check(); err != nil {
		return err
	}
	add := func(out bool) *edge {
		e := &edge{remote: p.remotes[x.rank], out: out, owner: pl}
		e.open()
		e.busy++ // until closeFilling: a loss of the session does not give the views back that fill makes
		pl.edges = append(pl.edges, e)
		pl.loud++
		return e
	}
	if len(x.sends) > 0 {
		x.out = add(true)
	}
	if len(x.recvs) > 0 {
		x.in = add(false)
	}
	for _, h := range x.hops {
		h.edge = add(h.out)
		pl.sends = pl.sends || h.out && h.from == nil
	}
	pl.sends = pl.sends || x.out != nil
	return nil
}

// closeFilling says that the edges of the pair are filled, or never will be.
func (x *pair) closeFilling() {
	p := x.draft.plan.p
	p.mu.Lock()
	defer p.unlock()
	edges := []*edge{x.out, x.in}
	for _, h := range x.hops {
		edges = append(edges, h.edge)
	}
	for _, e := range edges {
		if e != nil {
			e.busy--
			e.checkQuiet()
		}
	}
}

// fill gives an edge its boxes, and what it brings to merges. Where this process sees the memory of the other end, it
// maps that memory.
func (x *pair) fill(e *edge, moves []Move, mine []form, theirs []proposed) error {
	seen, err := x.see(e, mine, theirs)
	if err != nil {
		return err
	}
	for i := range moves {
		m, t := &moves[i], &theirs[i]
		src, dst := &mine[i], &t.form
		if !e.out {
			src, dst = dst, src
		}
		how, err := m.conversion(t, e.out)
		if err != nil {
			return err
		}
		n, err := nestBetween(src, dst)
		if err != nil {
			return fmt.Errorf("plan %s: %s: %s: %w", x.draft.plan.name, x.name, m.name(), err)
		}
		if src.elements() == 0 {
			continue
		}
		w := strided.Between(int64(dst.dtype.Size()), int64(src.dtype.Size()), n.loops()...)
		at := address(&m.View)
		switch {
		case how.merge != Overwrite:
			x.fillMerge(e, &mergeMove{move: m, mine: mine[i], how: how, edge: e, nest: n}, src, seen.pointer(t.form.place, !e.out))
		case !src.place.IsZero():
			e.viewed.addCast(&w, at, seen.pointer(t.form.place, !e.out), &how)
		case !dst.place.IsZero():
			e.written.addCast(&w, at, seen.pointer(t.form.place, e.out), &how)
		default:
			e.streamed.addCast(&w, at, nil, &how)
		}
	}
	if e.merges != nil {
		e.merges.queue.items = make([]pull, pullsAhead*e.merges.moves)
	}
	return nil
}

// fillMerge notes a move that the receiver merges. theirs is where the receiver sees the elements of the sender.
func (x *pair) fillMerge(e *edge, m *mergeMove, src *form, theirs unsafe.Pointer) {
	if e.merges == nil {
		e.merges = &mergeShare{}
	}
	share := e.merges
	bytes := src.elements() * int64(m.how.wire.Size())
	if !src.place.IsZero() {
		share.viewed += bytes
		m.theirs = theirs
	} else {
		share.pulled += bytes
		m.number = share.moves
		share.moves++
		if e.out {
			share.addSource(src, address(&m.move.View), &m.how)
		}
	}
	if !e.out {
		x.draft.merges = append(x.draft.merges, *m)
	}
}

// ranges are the parts of the other end's memory that this process sees, by grant.
type ranges map[link.GrantID]*seenRange

type seenRange struct {
	generation uint32
	from, to   int64
	base       unsafe.Pointer
}

// pointer is where a place of the other end is in this process, if needed.
func (s ranges) pointer(at link.Target, needed bool) unsafe.Pointer {
	if r := s[at.Grant]; needed && r != nil {
		return unsafe.Add(r.base, at.Offset-r.from)
	}
	return nil
}

// see maps what this end copies from, or to. One view for each grant holds all of it.
func (x *pair) see(e *edge, mine []form, theirs []proposed) (ranges, error) {
	all := ranges{}
	for i := range theirs {
		f := &theirs[i].form
		if f.place.IsZero() || f.span() == 0 || e.out && !mine[i].place.IsZero() {
			continue // in the last case, the other end copies
		}
		lo, hi := f.place.Offset, f.place.Offset+f.span()
		r := all[f.place.Grant]
		if r == nil {
			r = &seenRange{generation: f.place.Generation, from: lo, to: hi}
			all[f.place.Grant] = r
		}
		r.from, r.to = min(r.from, lo), max(r.to, hi)
	}
	rights := link.RightRead
	if e.out {
		rights = link.RightWrite
	}
	for grant, r := range all {
		v, err := e.link.Map(link.Target{Grant: grant, Generation: r.generation, Offset: r.from}, r.to-r.from, rights)
		if err != nil {
			return nil, &stepvan.OpError{Op: x.draft.op(), Peer: x.name, Van: e.link.Van(), Err: fmt.Errorf("this process cannot see its memory: %w", err)}
		}
		e.views = append(e.views, v)
		r.base = pointer(v.Bytes)
	}
	return all, nil
}

// matchOwn pairs the moves within this process.
func (x *pair) matchOwn() error {
	pl := x.draft.plan
	theirs := make([]proposed, len(x.sends))
	for i := range x.sends {
		theirs[i] = proposed{id: x.sends[i].ID, wire: x.sends[i].Wire, form: formOf(&x.sends[i].View)}
	}
	if err := x.compare(x.recvs, theirs, false); err != nil {
		return err
	}
	for i := range x.recvs {
		m, src, dst := &x.recvs[i], &theirs[i].form, formOf(&x.recvs[i].View)
		how, err := m.conversion(&theirs[i], false)
		if err != nil {
			return err
		}
		n, err := nestBetween(src, &dst)
		if err != nil {
			return fmt.Errorf("plan %s: %s: %w", pl.name, m.name(), err)
		}
		if from := address(&x.sends[i].View); m.Merge == Overwrite {
			w, _ := route(src, &dst) // they have a common division
			pl.local.addCast(&w, address(&m.View), from, &how)
		} else if src.elements() > 0 {
			x.draft.merges = append(x.draft.merges, mergeMove{move: m, mine: dst, how: how, theirs: from, nest: n})
		}
	}
	return nil
}
