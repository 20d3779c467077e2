package vantest

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"sync/atomic"
)

// reporter takes what a case finds, with the number of the clause that the van violates. The first violation ends the
// case. Methods that name no clause report the clause of the case. A violation panics, so they run on a goroutine of
// the case, or of driver.spawn.
type reporter struct {
	clause int
	name   string                  // of the case
	found  atomic.Pointer[Failure] // the first violation
}

// fail ends the case: the van violates the clause.
func (r *reporter) fail(clause int, format string, args ...any) { r.failAt(2, clause, format, args...) }

func (r *reporter) failAt(depth, clause int, format string, args ...any) {
	_, file, line, _ := runtime.Caller(depth)
	panic(Failure{clause, r.name, fmt.Sprintf(format, args...) + fmt.Sprintf(" [%s:%d]", filepath.Base(file), line)})
}

func (r *reporter) must(err error, doing string) {
	if err != nil {
		r.failAt(2, r.clause, "%s: %v", doing, err)
	}
}

func (r *reporter) want(ok bool, format string, args ...any) {
	if !ok {
		r.failAt(2, r.clause, format, args...)
	}
}

// wantErr fails the case unless what was called has returned an error of one of the kinds.
func (r *reporter) wantErr(err error, called string, kinds ...error) {
	if !slices.ContainsFunc(kinds, func(kind error) bool { return errors.Is(err, kind) }) {
		r.failAt(2, r.clause, "%s returned the wrong error (got %v, want %v)", called, err, kinds)
	}
}

// keep keeps the first violation that was recovered.
func (r *reporter) keep(recovered any) {
	switch v := recovered.(type) {
	case nil:
	case Failure:
		r.found.CompareAndSwap(nil, &v)
	default:
		panic(v)
	}
}

// relay ends the case when another goroutine has found a violation.
func (r *reporter) relay() {
	if v := r.found.Load(); v != nil {
		panic(*v)
	}
}
