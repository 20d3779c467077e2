package tensor

import (
	"fmt"
	"runtime"
	"strings"
	"sync"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/text"
)

// siteDepth is how many callers Options.Debug records.
const siteDepth = 16

// maxListedLeaks is how many regions a LeakError's text names.
const maxListedLeaks = 10

// Leak is a region that is still in use: nobody has closed it or put it back.
type Leak struct {
	ID         uint64 // of the region
	Generation uint32 // of the region
	Bytes      int    // the size of the region
	Holds      int    // how many operations hold the region
	Stack      string // the callers that asked for the region, one per line as "function file:line"; "" without Options.Debug
}

// String returns one line: number, size and holds of the region, and the first caller.
func (l Leak) String() string {
	s := fmt.Sprintf("region %d: %d bytes, held by %d operations", l.ID, l.Bytes, l.Holds)
	if at, _, _ := strings.Cut(l.Stack, "\n"); at != "" {
		s += ", from " + at
	}
	return s
}

// LeakError is what [Allocator.Close] returns while regions are in use. It wraps [stepvan.ErrBusy].
type LeakError struct {
	Allocator string // Options.Name
	Leaks     []Leak
	traced    bool
}

// Error names the first ten regions, and the number of the others.
func (e *LeakError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "tensor: allocator %q: %d regions are still open", text.Cut(e.Allocator), len(e.Leaks))
	for i, l := range e.Leaks {
		if i == maxListedLeaks {
			fmt.Fprintf(&b, "\n\tand %d more", len(e.Leaks)-i)
			break
		}
		b.WriteString("\n\t" + l.String())
	}
	if !e.traced {
		b.WriteString("\n\tset Options.Debug to see who asked for them")
	}
	return b.String()
}

// Unwrap returns stepvan.ErrBusy.
func (e *LeakError) Unwrap() error { return stepvan.ErrBusy }

// regionList has the regions with memory, idle ones too, the latest first.
type regionList struct {
	mu    sync.Mutex
	first *Region
}

func (l *regionList) add(r *Region) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.next = l.first
	if l.first != nil {
		l.first.prev = r
	}
	l.first = r
}

func (l *regionList) remove(r *Region) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.prev != nil {
		r.prev.next = r.next
	} else {
		l.first = r.next
	}
	if r.next != nil {
		r.next.prev = r.prev
	}
	r.prev, r.next = nil, nil
}

// open yields the regions that are in use.
func (l *regionList) open(yield func(*Region, life) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for r := l.first; r != nil; r = r.next {
		if state := r.life(); state.open() && !yield(r, state) {
			return
		}
	}
}

// trace records the callers that asked for r. stackText leaves out the allocator itself.
func (a *Allocator) trace(r *Region) {
	if !a.opt.Debug {
		return
	}
	pcs := make([]uintptr, siteDepth)
	n := runtime.Callers(2, pcs)
	a.regions.mu.Lock()
	r.site = pcs[:n]
	a.regions.mu.Unlock()
}

// Leaks lists the regions that are in use, sorted by the age of their memory. The oldest is last.
func (a *Allocator) Leaks() (all []Leak) {
	for r, l := range a.regions.open {
		all = append(all, Leak{
			ID: r.id, Generation: l.generation(), Bytes: r.Len(), Holds: l.holds(), Stack: stackText(r.site),
		})
	}
	return all
}

func stackText(pcs []uintptr) string {
	if len(pcs) == 0 {
		return ""
	}
	var b strings.Builder
	frames := runtime.CallersFrames(pcs)
	for {
		f, more := frames.Next()
		if !strings.Contains(f.Function, "/tensor.(*Allocator).") {
			fmt.Fprintf(&b, "%s %s:%d\n", f.Function, f.File, f.Line)
		}
		if !more {
			return b.String()
		}
	}
}
