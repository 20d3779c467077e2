package peer

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"unsafe"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/strided"
)

// hop is one end of a step of a chain: some moves of a source come to this peer, or leave it for another one. Both ends
// know it by its source, and the number that the source has given the chain.
type hop struct {
	source stepvan.Rank
	number uint32
	out    bool
	from   *hop // of a receiver that passes on: how the elements come to it
	moves  []Move
	mine   []form
	theirs []form
	edge   *edge
}

// leastHop is how many bytes a hop takes at least in a letter.
const leastHop = 4 + 4 + 1 + 1

// sortHops puts the hops of a pair into the same order at both ends. No two have one source and number.
func (x *pair) sortHops() {
	slices.SortFunc(x.hops, func(a, b *hop) int { return cmp.Or(cmp.Compare(a.source, b.source), cmp.Compare(a.number, b.number)) })
}

// meetNeighbors tells the neighbors in chains the views at this end, and reads theirs.
func (w chainDraft) meetNeighbors(ctx context.Context) error {
	d := w.draft
	for _, x := range d.pairs {
		x.sortHops()
		if len(x.hops) > 0 {
			if err := w.sendHops(x); err != nil {
				return err
			}
		}
	}
	for _, x := range d.pairs {
		if len(x.hops) > 0 {
			if err := w.readHops(ctx, x); err != nil {
				return err
			}
		}
		x.dropChained()
	}
	return nil
}

// sendHops tells the other end of a pair the views of the hops.
func (w chainDraft) sendHops(x *pair) error {
	d := w.draft
	p := d.plan.p
	p.mu.Lock()
	defer p.unlock()
	if err := d.check(); err != nil {
		return err
	}
	r := p.remotes[x.rank]
	if r.session == nil {
		return r.failure(d.op(), cmp.Or(r.dead, stepvan.ErrPeerLost))
	}
	b := binary.AppendUvarint(d.begin(letterHops, x), uint64(len(x.hops)))
	for _, h := range x.hops {
		rights := link.RightWrite
		if h.out {
			rights = link.RightRead
		}
		h.mine = make([]form, len(h.moves))
		for i := range h.moves {
			h.mine[i] = formOf(&h.moves[i].View)
			h.mine[i].place = r.reach(&h.moves[i].View, rights)
		}
		b = h.append(b)
	}
	if err := p.letters.checkSize(d.op(), len(b)); err != nil {
		return err
	}
	r.letters.post(d.key(), b)
	if !x.proposed {
		x.proposed, x.session = true, r.session
	}
	return nil
}

func (h *hop) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(h.source))
	b = binary.LittleEndian.AppendUint32(b, h.number)
	out := byte(0)
	if h.out {
		out = 1
	}
	b = binary.AppendUvarint(append(b, out), uint64(len(h.mine)))
	for i := range h.mine {
		b = h.mine[i].append(b)
	}
	return b
}

// hop reads what the other end tells of a hop.
func (d *decoder) hop() (h hop) {
	h.source, h.number = stepvan.Rank(int32(d.u32())), d.u32()
	out := d.u8()
	if out > 1 {
		d.fail("hops", "direction %d", out)
	}
	h.out = out == 1
	h.theirs = make([]form, d.count("forms", 3))
	for i := range h.theirs {
		h.theirs[i] = d.form()
	}
	return h
}

// hops reads a list of hops.
func (d *decoder) hops() (list []hop) {
	for range d.count("hops", leastHop) {
		h := d.hop()
		if d.err != nil {
			return nil
		}
		list = append(list, h)
	}
	return list
}

// readHops waits for the views of the other end of a pair.
func (w chainDraft) readHops(ctx context.Context, x *pair) error {
	d := w.draft
	l, err := d.read(ctx, x, func(l *letter) bool {
		return l.kind == letterHops && l.from == x.attempt && l.to == d.attempt
	})
	if err != nil {
		return err
	}
	theirs := l.hops()
	err = l.end()
	if err == nil && len(theirs) != len(x.hops) {
		err = errs.Protocol("hops", 17, "a neighbor has %d hops, want %d", len(theirs), len(x.hops))
	}
	for i := 0; err == nil && i < len(theirs); i++ {
		err = x.hops[i].compare(&theirs[i])
	}
	if err != nil {
		return d.expel(x, err)
	}
	return nil
}

// compare takes the other end of a hop, if it fits.
func (h *hop) compare(t *hop) error {
	if h.source != t.source || h.number != t.number || h.out == t.out || len(h.mine) != len(t.theirs) {
		return errs.Protocol("hops", 17, "a neighbor has a hop of %d views of chain %d of peer %d, want %d of chain %d of peer %d",
			len(t.theirs), t.number, t.source, len(h.mine), h.number, h.source)
	}
	for i := range h.mine {
		src, dst := &h.mine[i], &t.theirs[i]
		if !h.out {
			src, dst = dst, src
		}
		if src.elements() != dst.elements() || dst.dtype != cmp.Or(h.moves[i].Wire, dst.dtype) || h.from != nil && src.dtype != dst.dtype {
			return errs.Protocol("hops", 17, "a neighbor has %s in a hop, and here is %s", &t.theirs[i], &h.mine[i])
		}
	}
	h.theirs = t.theirs
	return nil
}

// dropChained takes the moves that are in chains out of the lists of the pair.
func (x *pair) dropChained() {
	for side, list := range x.chained {
		slices.Sort(list)
		for k := len(list) - 1; k >= 0; k-- {
			i := list[k]
			x.theirs[1-side] = slices.Delete(x.theirs[1-side], i, i+1)
			x.forms[side] = slices.Delete(x.forms[side], i, i+1)
			if side == 0 {
				x.sends = slices.Delete(x.sends, i, i+1)
			} else {
				x.recvs = slices.Delete(x.recvs, i, i+1)
			}
		}
	}
}

// dropPlaces drops the places of the views that neither end copies from or to. All elements of a hop travel in one way.
func (h *hop) dropPlaces() (src, dst []form) {
	src, dst = h.mine, h.theirs
	if !h.out {
		src, dst = dst, src
	}
	placed := func(list []form) bool {
		return !slices.ContainsFunc(list, func(f form) bool { return f.place.IsZero() })
	}
	drop := func(list []form) {
		for i := range list {
			list[i].place = link.Target{}
		}
	}
	switch {
	case placed(src):
		drop(dst)
	case placed(dst):
		drop(src)
	default:
		drop(src)
		drop(dst)
	}
	return src, dst
}

// linkHops tells the edges that pass elements on where those come from.
func (w chainDraft) linkHops() {
	d := w.draft
	p := d.plan.p
	p.mu.Lock()
	defer p.unlock()
	for _, x := range d.pairs {
		for _, h := range x.hops {
			if !h.out {
				h.edge.relay = &relay{edge: h.edge, late: h.source != x.rank}
			}
		}
	}
	for _, x := range d.pairs {
		for _, h := range x.hops {
			if h.from != nil {
				from := h.from.edge
				h.edge.relay = &relay{edge: h.edge, from: from}
				from.relay.next = append(from.relay.next, h.edge)
			}
		}
	}
}

// fillHop gives the edge of a hop its chunks. They are the same at all hops of a chain, and their elements follow the
// shape. So a receiver knows that what it passes on has come.
func (x *pair) fillHop(h *hop) error {
	e := h.edge
	src, dst := h.dropPlaces()
	theirs := make([]proposed, len(h.theirs))
	for i := range theirs {
		theirs[i].form = h.theirs[i]
	}
	seen, err := x.see(e, h.mine, theirs)
	if err != nil {
		return err
	}
	c := &e.streamed
	switch {
	case !src[0].place.IsZero():
		c = &e.viewed
	case !dst[0].place.IsZero():
		c = &e.written
	}
	pieces := pieces{cargo: c, out: h.out}
	for i := range h.moves {
		m := &h.moves[i]
		how, err := newConversion(src[i].dtype, cmp.Or(m.Wire, dst[i].dtype), dst[i].dtype, Overwrite)
		if err != nil {
			return fmt.Errorf("%s: %s: %s: %w", x.draft.op(), x.name, m.name(), err)
		}
		n, err := nestBetween(&src[i], &dst[i])
		if err != nil {
			return fmt.Errorf("%s: %s: %s: %w", x.draft.op(), x.name, m.name(), err)
		}
		at := h.theirs[i].place
		pieces.add(&n, dst[i].elements(), [2]int64{int64(dst[i].dtype.Size()), int64(src[i].dtype.Size())},
			address(&m.View), seen.pointer(at, h.out != (c == &e.viewed)), &how)
	}
	return nil
}

// pieces cuts moves into chunks by the numbers of their elements.
type pieces struct {
	cargo *cargo
	out   bool
	open  int64 // bytes of the last chunk
	moves int   // that have begun in it
}

// add appends a move. size has the bytes of an element at the destination, which it has on its way as well, and at the
// source.
func (s *pieces) add(n *nest, elements int64, size [2]int64, mine, theirs unsafe.Pointer, how *conversion) {
	c := s.cargo
	kind := c.kind(how)
	for lo := int64(0); lo < elements; {
		left := (elements - lo) * size[0]
		if len(c.chunks) == 0 || s.moves == chunkBoxes || s.open+min(left, chunkBytes) > chunkBytes {
			c.chunks = append(c.chunks, chunk{box: uint32(len(c.boxes))})
			s.open, s.moves = 0, 0
		}
		hi := min(elements, lo+chunkBytes/size[0])
		for b := n.between(lo, hi); b.next(); {
			w := strided.Between(size[0], size[1], b.walk()...)
			here, there := b.to, b.from
			if s.out {
				here, there = there, here
			}
			c.addBox(&w, shift(mine, here), shift(theirs, there), kind)
			c.chunks[len(c.chunks)-1].boxes++
		}
		s.open += (hi - lo) * size[0]
		s.moves++
		lo = hi
	}
}

// shift is unsafe.Add that leaves nil as it is.
func shift(p unsafe.Pointer, n int64) unsafe.Pointer {
	if p == nil {
		return nil
	}
	return unsafe.Add(p, n)
}
