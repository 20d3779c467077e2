package tensor

import (
	"errors"
	"fmt"
	"runtime"
	"strings"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/text"
)

// siteDepth is how many callers Options.Debug records.
const siteDepth = 16

// maxListedLeaks is how many regions a LeakError's text names.
const maxListedLeaks = 10

// Leak is a region that was neither closed nor put back.
type Leak struct {
	ID         uint64
	Generation uint32
	Bytes      int
	Holds      int    // operations that hold it
	Stack      string // the callers that asked for it, one "function file:line" a line; "" without Options.Debug
}

// String is one line, the first caller included.
func (l Leak) String() string {
	s := fmt.Sprintf("region %d: %d bytes, held by %d operations", l.ID, l.Bytes, l.Holds)
	if at, _, _ := strings.Cut(l.Stack, "\n"); at != "" {
		s += ", from " + at
	}
	return s
}

// LeakError is the error of closing an allocator that still has regions in use. It wraps [stepvan.ErrBusy].
type LeakError struct {
	Allocator string
	Leaks     []Leak
	traced    bool
}

// Error names the regions, the first ten at most.
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

// trace records the callers that asked for r. stackText leaves out the allocator itself.
func (a *Allocator) trace(r *Region) {
	if !a.opt.Debug {
		return
	}
	pcs := make([]uintptr, siteDepth)
	n := runtime.Callers(2, pcs)
	a.mu.Lock()
	r.site = pcs[:n]
	a.mu.Unlock()
}

// Leaks lists the regions that are in use, the oldest memory last.
func (a *Allocator) Leaks() []Leak {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []Leak
	for r := a.first; r != nil; r = r.next {
		l := r.life()
		if !l.open() {
			continue
		}
		out = append(out, Leak{
			ID: r.id, Generation: l.generation(), Bytes: r.Len(), Holds: l.holds(), Stack: stackText(r.site),
		})
	}
	return out
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

// Close ends the allocator: it gives no more regions, and its memory goes back to the system. Regions that are still in
// use stay usable, and the [LeakError] that Close returns lists them. Their memory goes back when they are closed. A
// further Close tells whether that has happened.
func (a *Allocator) Close() error {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	err := a.freeIdle(true)
	a.mu.Lock()
	drop := a.remove(func(x *arena) bool { return x.used == 0 })
	err = errors.Join(err, a.late)
	a.late = nil
	a.mu.Unlock()
	err = errors.Join(err, a.closeArenas(drop))
	if leaks := a.Leaks(); len(leaks) > 0 {
		err = errors.Join(err, &LeakError{Allocator: a.opt.Name, Leaks: leaks, traced: a.opt.Debug})
	}
	return err
}

// keep saves an error of the system for Close: Put and Release cannot return
// it, and their callers could do nothing about it.
func (a *Allocator) keep(err error) {
	if err == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.late = errors.Join(a.late, err)
}
