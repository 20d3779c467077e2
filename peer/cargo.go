package peer

import (
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
	bytes  int64
	open   int64 // bytes of the last chunk, while boxes may still join it
}

// box is the walk from the source of a move to its destination.
type box struct {
	mine   unsafe.Pointer // the first element of the view at this end
	theirs unsafe.Pointer // of the view at the other end; nil while this process does not see it
	run    int64          // elements that are contiguous at both ends
	loops  uint32         // where its loops begin
	rank   uint8
	size   uint8 // bytes of an element
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
	c.boxes, c.loops, c.chunks, c.bytes, c.open = c.boxes[:0], c.loops[:0], c.chunks[:0], 0, 0
}

// empty reports whether there is nothing to move.
func (c *cargo) empty() bool { return len(c.chunks) == 0 }

// add appends a box. The same boxes in the same order make the same chunks.
func (c *cargo) add(w *strided.Walk, mine, theirs unsafe.Pointer) {
	n := w.Bytes()
	if n == 0 {
		return
	}
	at := uint32(len(c.boxes))
	size, _, run := w.Elements()
	c.boxes = append(c.boxes, box{mine, theirs, run, uint32(len(c.loops)), uint8(len(w.Loops())), uint8(size)})
	c.loops = append(c.loops, w.Loops()...)
	c.bytes += n
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

// walk is the walk of a box.
func (c *cargo) walk(b *box) strided.Walk {
	return strided.Restore(int64(b.size), int64(b.size), b.run, c.loops[b.loops:b.loops+uint32(b.rank)])
}

// part is what box j of a chunk adds to it.
func (c *cargo) part(k chunk, j uint32) (b *box, p strided.Part) {
	b = &c.boxes[k.box+j]
	p.Walk = c.walk(b)
	if k.parts {
		parts := p.Cut(chunkBytes / int64(b.size))
		p = parts.At(int(k.part))
	}
	return b, p
}

// copyOut copies a chunk from this end to the other, which this process sees.
func (c *cargo) copyOut(i int) {
	k := c.chunks[i]
	for j := range k.boxes {
		b, p := c.part(k, j)
		p.Copy(unsafe.Add(b.theirs, p.To), unsafe.Add(b.mine, p.From))
	}
}

// copyIn copies a chunk from the other end, which this process sees, to this one.
func (c *cargo) copyIn(i int) {
	k := c.chunks[i]
	for j := range k.boxes {
		b, p := c.part(k, j)
		p.Copy(unsafe.Add(b.mine, p.To), unsafe.Add(b.theirs, p.From))
	}
}

// size is how many bytes a chunk has.
func (c *cargo) size(i int) (n int64) {
	k := c.chunks[i]
	for j := range k.boxes {
		_, p := c.part(k, j)
		n += p.Bytes()
	}
	return n
}

// pack copies a chunk out of the views of this end. to has its size.
func (c *cargo) pack(i int, to []byte) {
	k := c.chunks[i]
	for j := range k.boxes {
		b, p := c.part(k, j)
		g := p.Gather(int64(b.size))
		g.Copy(pointer(to), unsafe.Add(b.mine, p.From))
		to = to[p.Bytes():]
	}
}

// unpack copies a chunk that has come to the views of this end. from has its size.
func (c *cargo) unpack(i int, from []byte) {
	k := c.chunks[i]
	for j := range k.boxes {
		b, p := c.part(k, j)
		s := p.Scatter(int64(b.size))
		s.Copy(unsafe.Add(b.mine, p.To), pointer(from))
		from = from[p.Bytes():]
	}
}

// appendSources appends the memory of a chunk at this end, which sends it. It appends nothing when the runs are so
// short that it is better to pack them.
func (c *cargo) appendSources(i int, list [][]byte) [][]byte {
	k := c.chunks[i]
	var runs, bytes int64
	for j := range k.boxes {
		b, p := c.part(k, j)
		g := p.Gather(int64(b.size))
		runs, bytes = runs+g.Runs(), bytes+p.Bytes()
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
		s := p.Scatter(int64(b.size))
		runs, bytes = runs+s.Runs(), bytes+p.Bytes()
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
