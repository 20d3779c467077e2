package peer

import (
	"slices"
	"unsafe"

	"github.com/stepvan/stepvan/internal/strided"
)

// cargo is what one peer sends another in one of the ways: boxes, cut into chunks. Both ends make the same chunks of
// it, so a chunk is known by its number. A cargo does not change while it moves. Per box it takes 40 bytes, and 24 more
// for each of its loops.
type cargo struct {
	boxes  []box
	loops  []strided.Dim
	chunks []chunk
	casts  []conversion // of the boxes whose elements have another type at one end
	bytes  int64        // as they travel
	open   int64        // bytes of the last chunk, while boxes may still join it
	maker  Maker        // of the elements of its one box; nil: they lie in memory of this end
}

// box is the walk from the source of a move to its destination.
type box struct {
	mine   unsafe.Pointer // the first element of the view at this end
	theirs unsafe.Pointer // of the view at the other end; nil while this process does not see it
	run    int64          // elements that are contiguous at both ends
	loops  uint32         // where its loops begin
	rank   uint8
	size   [2]uint8 // bytes of an element at its destination and at its source
	cast   uint8    // 1 for the first of cargo.casts; 0: the elements stay as they are
}

// chunk is some boxes, or a part of one.
type chunk struct {
	box   uint32
	boxes uint32
	part  uint32 // of the box, which has several; 0 otherwise
	parts bool
}

const (
	// chunkBytes is the size of a chunk. It fits into the cache of a core, where one copy finds what another has left.
	chunkBytes = 1 << 20
	// chunkBoxes bounds the boxes of a chunk.
	chunkBoxes = 1024
	// gatherBytes is how long the runs of a chunk are on average for which a socket takes them from where they lie.
	gatherBytes = 512
)

// reset empties the cargo and keeps its memory.
func (c *cargo) reset() {
	clear(c.boxes)
	c.boxes, c.loops, c.chunks, c.casts, c.bytes, c.open = c.boxes[:0], c.loops[:0], c.chunks[:0], c.casts[:0], 0, 0
	c.maker = nil
}

// empty reports whether there is nothing to move.
func (c *cargo) empty() bool { return len(c.chunks) == 0 }

// add appends a box whose elements stay as they are. The same boxes in the same order make the same chunks.
func (c *cargo) add(w *strided.Walk, mine, theirs unsafe.Pointer) { c.append(w, mine, theirs, 0) }

// addCast appends a box whose elements are converted.
func (c *cargo) addCast(w *strided.Walk, mine, theirs unsafe.Pointer, how *conversion) {
	c.append(w, mine, theirs, c.kind(how))
}

// kind is the number of a conversion, which joins the others if it is not one of them.
func (c *cargo) kind(how *conversion) uint8 {
	if how.plain() {
		return 0
	}
	i := slices.IndexFunc(c.casts, func(k conversion) bool {
		return k.src == how.src && k.wire == how.wire && k.dst == how.dst
	})
	if i < 0 {
		i = len(c.casts)
		c.casts = append(c.casts, *how)
	}
	return uint8(i + 1)
}

func (c *cargo) append(w *strided.Walk, mine, theirs unsafe.Pointer, kind uint8) {
	if w.Bytes() == 0 {
		return
	}
	at := uint32(len(c.boxes))
	c.addBox(w, mine, theirs, kind)
	to, from, _ := w.Elements()
	size := max(to, from)
	n := w.Bytes() / to * size
	if n > chunkBytes {
		parts := w.Cut(chunkBytes / size)
		for i := range parts.Len() {
			c.chunks = append(c.chunks, chunk{box: at, boxes: 1, part: uint32(i), parts: true})
		}
		c.open = chunkBytes
		return
	}
	if last := len(c.chunks) - 1; last >= 0 && c.open+n <= chunkBytes && c.chunks[last].boxes < chunkBoxes {
		c.chunks[last].boxes++
		c.open += n
		return
	}
	c.chunks = append(c.chunks, chunk{box: at, boxes: 1})
	c.open = n
}

// addBox appends a box that belongs to no chunk yet.
func (c *cargo) addBox(w *strided.Walk, mine, theirs unsafe.Pointer, kind uint8) {
	to, from, run := w.Elements()
	b := box{mine, theirs, run, uint32(len(c.loops)), uint8(len(w.Loops())), [2]uint8{uint8(to), uint8(from)}, kind}
	c.boxes = append(c.boxes, b)
	c.loops = append(c.loops, w.Loops()...)
	c.bytes += w.Bytes() / to * c.wire(&b)
}

// conversion is how the elements of a box change, or nil.
func (c *cargo) conversion(b *box) *conversion {
	if b.cast == 0 {
		return nil
	}
	return &c.casts[b.cast-1]
}

// wire is how many bytes an element of a box has on its way.
func (c *cargo) wire(b *box) int64 {
	if k := c.conversion(b); k != nil {
		return int64(k.wire.Size())
	}
	return int64(b.size[0])
}

// bytesOf is how many bytes a part of a box has on its way.
func (c *cargo) bytesOf(b *box, p *strided.Part) int64 {
	return p.Bytes() / int64(b.size[0]) * c.wire(b)
}

// walk is the walk of a box.
func (c *cargo) walk(b *box) strided.Walk {
	return strided.Restore(int64(b.size[0]), int64(b.size[1]), b.run, c.loops[b.loops:b.loops+uint32(b.rank)])
}

// part is what box j of a chunk adds to it.
func (c *cargo) part(k chunk, j uint32) (b *box, p strided.Part) {
	b = &c.boxes[k.box+j]
	p.Walk = c.walk(b)
	if k.parts {
		parts := p.Cut(chunkBytes / int64(max(b.size[0], b.size[1])))
		p = parts.At(int(k.part))
	}
	return b, p
}

// copyOut copies a chunk from this end to the other, which this process sees.
func (c *cargo) copyOut(i int) {
	k := c.chunks[i]
	if c.maker != nil {
		b, p := c.part(k, 0)
		c.maker.Make(unsafe.Slice((*byte)(unsafe.Add(b.theirs, p.To)), p.Bytes()), p.From)
		return
	}
	for j := range k.boxes {
		b, p := c.part(k, j)
		c.copy(b, &p, unsafe.Add(b.theirs, p.To), unsafe.Add(b.mine, p.From))
	}
}

// copyIn copies a chunk from the other end, which this process sees, to this one.
func (c *cargo) copyIn(i int) {
	k := c.chunks[i]
	for j := range k.boxes {
		b, p := c.part(k, j)
		c.copy(b, &p, unsafe.Add(b.mine, p.To), unsafe.Add(b.theirs, p.From))
	}
}

// copy copies a part of a box from one end to the other. A large cargo passes the caches, although no chunk would.
func (c *cargo) copy(b *box, p *strided.Part, to, from unsafe.Pointer) {
	if k := c.conversion(b); k != nil {
		k.all.ApplyPart(&p.Walk, to, from, c.bytes)
		return
	}
	p.CopyPart(to, from, c.bytes)
}

// size is how many bytes a chunk has on its way.
func (c *cargo) size(i int) (n int64) {
	k := c.chunks[i]
	for j := range k.boxes {
		b, p := c.part(k, j)
		n += c.bytesOf(b, &p)
	}
	return n
}

// pack copies a chunk out of the views of this end. to has its size.
func (c *cargo) pack(i int, to []byte) {
	k := c.chunks[i]
	if c.maker != nil {
		_, p := c.part(k, 0)
		c.maker.Make(to, p.From)
		return
	}
	for j := range k.boxes {
		b, p := c.part(k, j)
		g := p.Gather(c.wire(b))
		if how := c.conversion(b); how != nil {
			how.out.Apply(&g, pointer(to), unsafe.Add(b.mine, p.From))
		} else {
			g.Copy(pointer(to), unsafe.Add(b.mine, p.From))
		}
		to = to[c.bytesOf(b, &p):]
	}
}

// unpack copies a chunk that has come to the views of this end. from has its size.
func (c *cargo) unpack(i int, from []byte) {
	k := c.chunks[i]
	for j := range k.boxes {
		b, p := c.part(k, j)
		s := p.Scatter(c.wire(b))
		if how := c.conversion(b); how != nil {
			how.in.Apply(&s, unsafe.Add(b.mine, p.To), pointer(from))
		} else {
			s.Copy(unsafe.Add(b.mine, p.To), pointer(from))
		}
		from = from[c.bytesOf(b, &p):]
	}
}

// appendSources appends the memory of a chunk at this end, which sends it. It appends nothing when elements are
// converted here, or the runs are so short that it is better to pack them.
func (c *cargo) appendSources(i int, list [][]byte) [][]byte {
	k := c.chunks[i]
	if c.maker != nil {
		_, p := c.part(k, 0)
		return c.maker.AppendSources(list, p.From, p.Bytes())
	}
	var runs, bytes int64
	for j := range k.boxes {
		b, p := c.part(k, j)
		if how := c.conversion(b); how != nil && how.wire != how.src {
			return list
		}
		g := p.Gather(c.wire(b))
		runs, bytes = runs+g.Runs(), bytes+c.bytesOf(b, &p)
	}
	if bytes < runs*gatherBytes {
		return list
	}
	for j := range k.boxes {
		b, p := c.part(k, j)
		list = p.AppendSources(list, unsafe.Add(b.mine, p.From))
	}
	return list
}

// appendDestinations appends the memory of a chunk at this end, which receives it, as appendSources does.
func (c *cargo) appendDestinations(i int, list [][]byte) [][]byte {
	k := c.chunks[i]
	var runs, bytes int64
	for j := range k.boxes {
		b, p := c.part(k, j)
		if how := c.conversion(b); how != nil && how.wire != how.dst {
			return list
		}
		s := p.Scatter(c.wire(b))
		runs, bytes = runs+s.Runs(), bytes+c.bytesOf(b, &p)
	}
	if bytes < runs*gatherBytes {
		return list
	}
	for j := range k.boxes {
		b, p := c.part(k, j)
		list = p.AppendDestinations(list, unsafe.Add(b.mine, p.To))
	}
	return list
}
