package strided

import (
	"cmp"
	"slices"
	"unsafe"

	"github.com/stepvan/stepvan/internal/bulk"
)

// MaxRank is the largest number of dimensions of a view.
const MaxRank = 8

// Dim is a loop: so many steps, and how far each goes in the destination and in the source, in bytes.
type Dim struct{ Extent, To, From int64 }

// Walk is a nest of loops over two views. The zero value copies nothing.
type Walk struct {
	run      int64 // elements that are contiguous in both
	to, from int64 // bytes of an element
	rank     int   // loops around a run
	dims     [MaxRank]Dim
}

// New makes the walk over two views with elements of so many bytes. dims follow the shape, outermost first, at
// most [MaxRank] of them. No step goes back. The walk visits them in the order of the destination's memory.
func New(size int64, dims ...Dim) Walk { return Between(size, size, dims...) }

// Between is New for elements that have other sizes in the destination than in the source. [Walk.Apply] converts them.
func Between(to, from int64, dims ...Dim) (w Walk) {
	w.run, w.to, w.from = 1, to, from
	for _, d := range dims {
		switch d.Extent {
		case 0:
			return Walk{}
		case 1:
		default:
			w.dims[w.rank] = d
			w.rank++
		}
	}
	slices.SortStableFunc(w.dims[:w.rank], func(a, b Dim) int { return cmp.Compare(b.To, a.To) })
	w.join()
	w.pair()
	return w
}

// join makes one loop of two where both views have the inner one's elements side by side. The innermost one becomes the
// run if it can.
func (w *Walk) join() {
	n := 0
	for _, d := range w.dims[:w.rank] {
		if n > 0 {
			if o := &w.dims[n-1]; o.To == d.To*d.Extent && o.From == d.From*d.Extent {
				*o = Dim{o.Extent * d.Extent, d.To, d.From}
				continue
			}
		}
		w.dims[n] = d
		n++
	}
	if n > 0 {
		if d := w.dims[n-1]; d.To == w.to && d.From == w.from {
			w.run = d.Extent
			n--
		}
	}
	clear(w.dims[n:])
	w.rank = n
}

// pair puts the loop that is contiguous in the source beside the innermost one, which is contiguous in the destination:
// the two are a transpose.
func (w *Walk) pair() {
	list := w.dims[:w.rank]
	at := slices.IndexFunc(list, func(d Dim) bool { return d.From == w.run*w.from })
	if at < 0 || at >= w.rank-2 || !isShort(w.run*w.from) {
		return
	}
	d := list[at]
	copy(list[at:], list[at+1:w.rank-1])
	list[w.rank-2] = d
}

// isShort reports whether a run of so many bytes is copied by some instructions. Go's copy is faster from 64 bytes on:
// outside of the caches by two thirds.
func isShort(run int64) bool {
	return run <= wordBytes && run&(run-1) == 0 || run < 4*wordBytes && run%wordBytes == 0
}

// Bytes is how many bytes of the destination the walk writes.
func (w *Walk) Bytes() int64 { return w.Run() * w.Runs() }

// Run is how many bytes of the destination are contiguous in both views.
func (w *Walk) Run() int64 { return w.run * w.to }

// Runs is how many runs there are. It is 0 for a view without elements.
func (w *Walk) Runs() int64 {
	if w.run == 0 {
		return 0
	}
	n := int64(1)
	for _, d := range w.dims[:w.rank] {
		n *= d.Extent
	}
	return n
}

// Copy copies all elements, which have one size. to and from are the first elements of the views, which share no
// element. Each view must reach as far as the loops go. Budget: 0 allocations.
func (w *Walk) Copy(to, from unsafe.Pointer) { w.CopyPart(to, from, w.Bytes()) }

// CopyPart is Copy for a part of whole bytes, which are copied one part after the other. If the caches cannot hold all
// of them, none of them need be there. Budget: 0 allocations.
func (w *Walk) CopyPart(to, from unsafe.Pointer, whole int64) {
	run := w.Run()
	w.each(to, from, func(to, from unsafe.Pointer, rows, elements Dim) {
		copyRows(to, from, &rows, &elements, run, whole)
	})
}

// each calls visit with the two innermost loops around the runs, for each step of the others.
func (w *Walk) each(to, from unsafe.Pointer, visit func(to, from unsafe.Pointer, rows, elements Dim)) {
	if w.run == 0 {
		return
	}
	inner := min(w.rank, 2)
	outer := w.dims[:w.rank-inner]
	rows, elements := Dim{Extent: 1}, Dim{Extent: 1}
	if inner > 0 {
		elements = w.dims[w.rank-1]
	}
	if inner > 1 {
		rows = w.dims[w.rank-2]
	}
	var at [MaxRank]int64
	for {
		visit(to, from, rows, elements)
		i := len(outer) - 1
		for ; i >= 0; i-- {
			if at[i]++; at[i] < outer[i].Extent {
				to, from = unsafe.Add(to, outer[i].To), unsafe.Add(from, outer[i].From)
				break
			}
			back := outer[i].Extent - 1
			to, from = unsafe.Add(to, -back*outer[i].To), unsafe.Add(from, -back*outer[i].From)
			at[i] = 0
		}
		if i < 0 {
			return
		}
	}
}

// copyRows copies two loops of runs of so many bytes. The whole copy has so many bytes.
func copyRows(to, from unsafe.Pointer, rows, elements *Dim, run, whole int64) {
	switch {
	case !isShort(run):
		copyRuns(to, from, rows, elements, run, whole)
	case run == 1:
		copyElements[uint8](to, from, rows, elements)
	case run == 2:
		copyElements[uint16](to, from, rows, elements)
	case run == 4:
		copyElements[uint32](to, from, rows, elements)
	case run == 8:
		copyElements[uint64](to, from, rows, elements)
	case run == 16:
		copyElements[[2]uint64](to, from, rows, elements)
	default:
		copyWords(to, from, rows, elements, run)
	}
}

// long is from where on it matters which caches a run passes.
const long = 32 << 10

// copyRuns copies two loops of long runs.
func copyRuns(to, from unsafe.Pointer, rows, elements *Dim, run, whole int64) {
	n := int(run)
	for i := range rows.Extent {
		for k := range elements.Extent {
			a := unsafe.Slice((*byte)(unsafe.Add(to, i*rows.To+k*elements.To)), n)
			b := unsafe.Slice((*byte)(unsafe.Add(from, i*rows.From+k*elements.From)), n)
			if n < long {
				copy(a, b)
			} else {
				bulk.CopyPart(a, b, whole)
			}
		}
	}
}

// lineBytes is the size of a line of the cache.
const lineBytes = 64

// copyElements copies two loops of elements.
func copyElements[T any](to, from unsafe.Pointer, rows, elements *Dim) {
	size := int64(unsafe.Sizeof(*new(T)))
	if rows.From == size && elements.To == size && rows.Extent*elements.Extent*size >= lineBytes*lineBytes/4 {
		transpose[T](to, from, rows, elements)
		return
	}
	for i := range rows.Extent {
		copyRow[T](unsafe.Add(to, i*rows.To), unsafe.Add(from, i*rows.From), elements)
	}
}

// copyRow copies elements that lie apart. No pointer leaves the views: the collector might find it.
func copyRow[T any](to, from unsafe.Pointer, d *Dim) {
	var a, b int64
	for range d.Extent {
		*(*T)(unsafe.Add(to, a)) = *(*T)(unsafe.Add(from, b))
		a, b = a+d.To, b+d.From
	}
}

// wordBytes is what one instruction copies.
const wordBytes = 16

// copyWords copies two loops of runs of a few words each.
func copyWords(to, from unsafe.Pointer, rows, elements *Dim, run int64) {
	for i := range rows.Extent {
		a, b := i*rows.To, i*rows.From
		for range elements.Extent {
			for k := int64(0); k < run; k += wordBytes {
				*(*[2]uint64)(unsafe.Add(to, a+k)) = *(*[2]uint64)(unsafe.Add(from, b+k))
			}
			a, b = a+elements.To, b+elements.From
		}
	}
}

// transpose copies two loops of which each is contiguous in one of the views, in tiles of a line of the cache each way.
// A tile is copied by way of the stack. So each line of either view is touched once, although lines that are a power of
// two apart keep one another out of the cache.
func transpose[T any](to, from unsafe.Pointer, rows, elements *Dim) {
	var tile [lineBytes][lineBytes]byte
	size := int64(unsafe.Sizeof(*new(T)))
	edge := lineBytes / size
	for lo := int64(0); lo < elements.Extent; lo += edge {
		n := min(edge, elements.Extent-lo)
		for hi := int64(0); hi < rows.Extent; hi += edge {
			m := min(edge, rows.Extent-hi)
			for k := range n {
				row := unsafe.Add(from, (lo+k)*elements.From+hi*size)
				copy(tile[k][:], unsafe.Slice((*byte)(row), m*size))
			}
			for i := range m {
				row := unsafe.Slice((*T)(unsafe.Add(to, (hi+i)*rows.To+lo*size)), n)
				column := unsafe.Pointer(&tile[0][i*size])
				for k := range row {
					row[k] = *(*T)(unsafe.Add(column, k*lineBytes))
				}
			}
		}
	}
}
