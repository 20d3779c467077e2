package strided

import (
	"sync"
	"unsafe"
)

// leastRun is how many elements follow one another in both views where a call for each run costs little.
const leastRun = 32

// edge is how many elements a tile has at least each way, where the loops have as many.
const edge = 32

// tile is where elements that lie apart come together: those of the source, and those of the destination.
type tile struct{ to, from [tileBytes]byte }

const tileBytes = 8 << 10

var tiles = sync.Pool{New: func() any { return new(tile) }}

// Apply has step work on all elements, with n of them at a time that follow one another on both sides. It may convert
// them, for example. With reads it also sees what the destination had there. A call gets the elements of the views
// themselves, or copies of them, which Apply then copies to the destination. The rules of Copy hold. An element has at
// most 16 bytes. Budget: 0 allocations.
func (w *Walk) Apply(to, from unsafe.Pointer, reads bool, step func(to, from unsafe.Pointer, n int)) {
	if w.run >= leastRun || w.rank == 0 {
		w.each(to, from, func(to, from unsafe.Pointer, rows, elements Dim) {
			for i := range rows.Extent {
				for k := range elements.Extent {
					step(unsafe.Add(to, i*rows.To+k*elements.To), unsafe.Add(from, i*rows.From+k*elements.From), int(w.run))
				}
			}
		})
		return
	}
	t := tiles.Get().(*tile)
	w.each(to, from, func(to, from unsafe.Pointer, rows, elements Dim) {
		w.applyTiles(t, to, from, &rows, &elements, reads, step)
	})
	tiles.Put(t)
}

// applyTiles works on two loops of short runs. An element lies in the tile where its neighbours are not beside it.
func (w *Walk) applyTiles(t *tile, to, from unsafe.Pointer, rows, elements *Dim, reads bool, step func(to, from unsafe.Pointer, n int)) {
	a, b, whole := w.run*w.to, w.run*w.from, w.Bytes()
	most := tileBytes / max(a, b)
	columns := min(elements.Extent, max(edge, most/rows.Extent), most)
	height := min(rows.Extent, most/columns)
	for i := int64(0); i < rows.Extent; i += height {
		m := min(height, rows.Extent-i)
		for k := int64(0); k < elements.Extent; k += columns {
			n := min(columns, elements.Extent-k)
			to, from := unsafe.Add(to, i*rows.To+k*elements.To), unsafe.Add(from, i*rows.From+k*elements.From)
			x, y := to, from
			if elements.From != b || m > 1 && rows.From != n*b {
				y = unsafe.Pointer(&t.from)
				copyRows(y, from, &Dim{m, n * b, rows.From}, &Dim{n, b, elements.From}, b, whole)
			}
			apart := elements.To != a || m > 1 && rows.To != n*a
			if apart {
				x = unsafe.Pointer(&t.to)
			}
			if apart && reads {
				copyRows(x, to, &Dim{m, n * a, rows.To}, &Dim{n, a, elements.To}, a, whole)
			}
			step(x, y, int(m*n*w.run))
			if apart {
				copyRows(to, x, &Dim{m, rows.To, n * a}, &Dim{n, elements.To, a}, a, whole)
			}
		}
	}
}
