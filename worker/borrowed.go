package worker

import (
	"github.com/cespare/xxhash/v2"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
)

// sum notes what the pushes of c are, for Options.CheckBorrowed. A push that the answer may be written into is left out.
// Under Worker.mu.
func (w *Worker) sum(c *call) {
	c.sums = c.sums[:0]
	if !w.opt.CheckBorrowed {
		return
	}
	for i := range c.push {
		var s uint64
		if !c.pulledInto(i) {
			s = xxhash.Sum64(c.push[i].Bytes())
		}
		c.sums = append(c.sums, s)
	}
}

// checkSums fails c when a push is not what it was. Under Worker.mu, before its handle finishes and its tensors are released.
func (w *Worker) checkSums(c *call) {
	for i, was := range c.sums {
		if c.pulledInto(i) {
			continue
		}
		if is := xxhash.Sum64(c.push[i].Bytes()); is != was {
			c.fail(changed(c, i, is, was))
		}
	}
	c.sums = c.sums[:0]
}

// changed is the error of push i of c.
func changed(c *call, i int, is, was uint64) error {
	return &stepvan.OpError{Op: "push_pull", Err: errs.Invalid(
		"push tensor %d (key %d): it was changed before its handle had finished (got checksum %016x, want %016x), and servers may have received either: wait for the handle before you write to it, move it or free it",
		i, c.pushKeys[i], is, was)}
}
