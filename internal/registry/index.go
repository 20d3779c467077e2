package registry

import (
	"cmp"
	"slices"
	"sort"
	"sync/atomic"
	"unsafe"

	"github.com/stepvan/stepvan/tensor"
)

// index finds registered memory by address. It is replaced whole, so readers need no lock.
type index struct{ spans atomic.Pointer[[]span] }

// span is registered memory. Spans may overlap.
type span struct {
	extent
	reach uintptr // the largest end of this span and of all before it
	e     *entry
}

func extentOf(b []byte) extent {
	start := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	return extent{start, start + uintptr(len(b))}
}

// build makes the index of the entries that are ready.
func (x *index) build(entries map[extent]*entry) {
	spans := make([]span, 0, len(entries))
	for at, e := range entries {
		if e.ready {
			spans = append(spans, span{extent: at, e: e})
		}
	}
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.start, b.start) })
	for i := range spans {
		spans[i].reach = spans[i].end
		if i > 0 {
			spans[i].reach = max(spans[i].end, spans[i-1].reach)
		}
	}
	x.spans.Store(&spans)
}

// find finds a span that holds all of b.
func (x *index) find(b []byte) (tensor.Place, bool) {
	e := x.entry(b)
	if e == nil {
		return tensor.Place{}, false
	}
	return tensor.Place{File: e.id, FD: -1, Memory: e.mem, Offset: int64(extentOf(b).start - extentOf(e.mem).start)}, true
}

// Registered is memory that the devices reach.
type Registered struct {
	Regions int    // that were registered, each with every device
	Bytes   uint64 // of them together, which the devices have pinned
}

// Registered returns what is registered at this moment.
func (r *Registry) Registered() (sum Registered) {
	if list := r.found.spans.Load(); list != nil {
		for _, s := range *list {
			sum.Regions++
			sum.Bytes += uint64(s.end - s.start)
		}
	}
	return sum
}

// entry returns an entry that holds all of b, or nil.
func (x *index) entry(b []byte) *entry {
	list := x.spans.Load()
	if list == nil || len(b) == 0 {
		return nil
	}
	spans, want := *list, extentOf(b)
	i := sort.Search(len(spans), func(i int) bool { return spans[i].start > want.start })
	for i--; i >= 0 && spans[i].reach >= want.end; i-- {
		if s := &spans[i]; s.end >= want.end {
			return s.e
		}
	}
	return nil
}
