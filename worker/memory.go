package worker

import (
	"cmp"
	"slices"
	"sort"

	"github.com/cespare/xxhash/v2"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/reuse"
	"github.com/stepvan/stepvan/tensor"
)

// span is a range of addresses.
type span struct{ start, end uintptr }

// spanOf is the memory of t, on whatever device. Devices and the host share no addresses.
func spanOf(t *tensor.Tensor) span {
	start := t.Address()
	return span{start, start + uintptr(t.Len())}
}

// overlap reports whether a and b share memory.
func overlap(a, b *tensor.Tensor) bool {
	if a.Len() == 0 || b.Len() == 0 {
		return false
	}
	x, y := spanOf(a), spanOf(b)
	return x.start < y.end && y.start < x.end
}

// pullsInto reports whether a pull of x shares memory with push i. The server must then
// have a copy of the push, since it may answer before it has read everything.
func (x *activeExchange) pullsInto(i int) bool {
	for k := range x.pull {
		if overlap(&x.push[i], &x.pull[k]) {
			return true
		}
	}
	return false
}

// pullSpan is the memory of a pull.
type pullSpan struct {
	span
	pull    int
	request *request
}

// overlapCheck refuses exchanges whose tensors share memory in a way that makes the outcome a matter of chance. The
// slice is kept for the next check. Worker.mu guards it.
//
// Budget: nothing for one server and one pull. Otherwise there is a span per pull, and the spans are sorted unless the
// pulls are in the order of their addresses.
type overlapCheck struct{ spans []pullSpan }

// check refuses pulls that share memory. It also refuses a pull that shares memory with a push, unless one server
// reads the push and writes the pull. Another server may not have read the push by then. The same server answers when
// it has the push.
func (c *overlapCheck) check(x *activeExchange) error {
	if len(x.pull) == 0 || len(x.requests) == 1 && len(x.pull) == 1 {
		return nil
	}
	c.load(x)
	defer func() { c.spans = reuse.Slice(c.spans) }()
	for n := 1; n < len(c.spans); n++ {
		if a, b := c.spans[n-1], c.spans[n]; b.start < a.end {
			i, j := min(a.pull, b.pull), max(a.pull, b.pull)
			return errs.Invalid("push_pull: pull tensors %d (key %d) and %d (key %d): they share memory: give each memory of its own", i, x.pullKeys[i], j, x.pullKeys[j])
		}
	}
	if len(x.requests) == 1 {
		return nil
	}
	for _, r := range x.requests {
		if err := c.checkPushes(r); err != nil {
			return err
		}
	}
	return nil
}

// load makes the spans of the pulls that have memory, by address.
func (c *overlapCheck) load(x *activeExchange) {
	sorted := true
	for _, r := range x.requests {
		for _, i := range r.pulls {
			t := &x.pull[i]
			if t.Len() == 0 {
				continue
			}
			s := pullSpan{spanOf(t), i, r}
			sorted = sorted && (len(c.spans) == 0 || c.spans[len(c.spans)-1].start <= s.start)
			c.spans = append(c.spans, s)
		}
	}
	if !sorted {
		slices.SortFunc(c.spans, func(a, b pullSpan) int { return cmp.Compare(a.start, b.start) })
	}
}

// checkPushes looks for pulls of other requests in the memory of the pushes of r. The spans do not overlap.
func (c *overlapCheck) checkPushes(r *request) error {
	x := r.exchange
	for _, i := range r.pushes {
		push := spanOf(&x.push[i])
		if push.start == push.end {
			continue
		}
		at := sort.Search(len(c.spans), func(j int) bool { return c.spans[j].end > push.start })
		for ; at < len(c.spans) && c.spans[at].start < push.end; at++ {
			if s := &c.spans[at]; s.request != r {
				return errs.Invalid("push_pull: push tensor %d (key %d) to %s: it shares memory with pull tensor %d (key %d), which %s writes: give each memory of its own",
					i, x.pushKeys[i], r.server.name, s.pull, x.pullKeys[s.pull], s.request.server.name)
			}
		}
	}
	return nil
}

// computeChecksums notes the content of the pushes, for Options.CheckBorrowed. Under Worker.mu.
func (x *activeExchange) computeChecksums() {
	for i := range x.push {
		x.checksums = append(x.checksums, x.checksum(i))
	}
}

// checksum is the checksum of push i, or 0 for a push that the answer may be written into.
func (x *activeExchange) checksum(i int) uint64 {
	if x.pullsInto(i) {
		return 0
	}
	return xxhash.Sum64(x.push[i].Bytes())
}

// compareChecksums fails x when a push has changed. Under Worker.mu, before the handle completes and the tensors are
// released.
func (x *activeExchange) compareChecksums() {
	for i, want := range x.checksums {
		if got := x.checksum(i); got != want {
			x.fail(&stepvan.OpError{Op: "push_pull", Err: errs.Invalid(
				"push tensor %d (key %d): it was changed before its handle had finished (got checksum %016x, want %016x). Servers may have received either: wait for the handle before you write to it, move it or free it",
				i, x.pushKeys[i], got, want)})
		}
	}
}
