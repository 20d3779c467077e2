package worker

import (
	"github.com/cespare/xxhash/v2"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
)

// computeChecksums notes the content of the pushes, for Options.CheckBorrowed. It leaves out a push that the answer
// may be written into. Under Worker.mu.
func (x *activeExchange) computeChecksums() {
	x.checksums = x.checksums[:0]
	for i := range x.push {
		var sum uint64
		if !x.pullsInto(i) {
			sum = xxhash.Sum64(x.push[i].Bytes())
		}
		x.checksums = append(x.checksums, sum)
	}
}

// compareChecksums fails x when a push has changed. Under Worker.mu, before the handle completes and the tensors are
// released.
func (x *activeExchange) compareChecksums() {
	for i, want := range x.checksums {
		if x.pullsInto(i) {
			continue
		}
		if got := xxhash.Sum64(x.push[i].Bytes()); got != want {
			x.fail(&stepvan.OpError{Op: "push_pull", Err: errs.Invalid(
				"push tensor %d (key %d): it was changed before its handle had finished (got checksum %016x, want %016x), and servers may have received either: wait for the handle before you write to it, move it or free it",
				i, x.pushKeys[i], got, want)})
		}
	}
	x.checksums = x.checksums[:0]
}
