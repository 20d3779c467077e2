package peer

import (
	"fmt"
	"unsafe"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
)

// pair is what a plan moves between this peer and another.
type pair struct {
	draft        *draft
	rank         stepvan.Rank
	name         string
	sends, recvs []Move        // by ID
	forms        [2][]form     // of sends and of recvs, as the other peer is told
	proposed     bool          // the other peer has been told
	attempt      uint64        // of the other peer; 0 before its proposal
	theirs       [2][]proposed // its sends and receives
	out, in      *edge         // nil without moves
}

// proposed is a move at the other end.
type proposed struct {
	id   uint64
	form form
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
		m := proposed{d.u64(), d.form()}
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

// match compares the two proposals of a pair, and makes its edges.
func (x *pair) match() (err error) {
	if x.draft.isSelf(x) {
		return x.matchOwn()
	}
	sends, recvs := x.theirs[0], x.theirs[1]
	if err := x.compare(x.sends, recvs, "receives"); err != nil {
		return err
	}
	if err := x.compare(x.recvs, sends, "sends"); err != nil {
		return err
	}
	x.openEdges()
	if x.out != nil {
		err = x.fill(x.out, x.sends, x.forms[0], recvs)
	}
	if x.in != nil && err == nil {
		err = x.fill(x.in, x.recvs, x.forms[1], sends)
	}
	return err
}

// compare checks that each move at one end has its other end, and that both fit.
func (x *pair) compare(mine []Move, theirs []proposed, verb string) error {
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
		m := formOf(&mine[i].View)
		if t := &theirs[i].form; t.dtype != m.dtype || t.bytes() != m.bytes() {
			e.What, e.Mine, e.Theirs = mine[i].name(), m.String(), t.String()
			return e
		}
	}
	return nil
}

// openEdges gives the edges of a pair their numbers.
func (x *pair) openEdges() {
	pl := x.draft.plan
	p := pl.p
	p.mu.Lock()
	defer p.unlock()
	add := func(out bool) *edge {
		e := &edge{remote: p.remotes[x.rank], out: out, owner: pl}
		e.open()
		pl.edges = append(pl.edges, e)
		pl.loud++
		pl.sends = pl.sends || out
		return e
	}
	if len(x.sends) > 0 {
		x.out = add(true)
	}
	if len(x.recvs) > 0 {
		x.in = add(false)
	}
}

// fill gives an edge its boxes. Where this process sees the memory of the other end, it maps that memory.
func (x *pair) fill(e *edge, moves []Move, mine []form, theirs []proposed) error {
	seen, err := x.see(e, mine, theirs)
	if err != nil {
		return err
	}
	for i := range moves {
		src, dst := &mine[i], &theirs[i].form
		if !e.out {
			src, dst = dst, src
		}
		w, err := route(src, dst)
		if err != nil {
			return fmt.Errorf("plan %s: %s: %s: %w", x.draft.plan.name, x.name, moves[i].name(), err)
		}
		at := address(&moves[i].View)
		switch {
		case !src.place.IsZero():
			e.viewed.add(&w, at, seen.pointer(theirs[i].form.place, !e.out))
		case !dst.place.IsZero():
			e.written.add(&w, at, seen.pointer(theirs[i].form.place, e.out))
		default:
			e.streamed.add(&w, at, nil)
		}
	}
	return nil
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
		theirs[i] = proposed{x.sends[i].ID, formOf(&x.sends[i].View)}
	}
	if err := x.compare(x.recvs, theirs, "sends"); err != nil {
		return err
	}
	for i := range x.recvs {
		dst := formOf(&x.recvs[i].View)
		w, err := route(&theirs[i].form, &dst)
		if err != nil {
			return fmt.Errorf("plan %s: %s: %w", pl.name, x.recvs[i].name(), err)
		}
		pl.local.add(&w, address(&x.recvs[i].View), address(&x.sends[i].View))
	}
	return nil
}
