package worker

import (
	"cmp"
	"slices"
	"sort"
	"unsafe"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/reuse"
)

// span is the memory of a pull.
type span struct {
	start, end uintptr
	pull       int
	part       *part
}

// checkApart refuses pulls of c that share memory, where chance would decide whose answer stays, and a pull that shares
// memory with a push to another server than the one that writes it, which might not have read the push by then. A push and a
// pull of the same server may be one tensor: it answers when it has the push. Under w.mu. Budget: nothing for one
// server and one pull; else a span per pull, which is sorted unless the pulls are in the order of their addresses.
func (w *Worker) checkApart(c *call) error {
	if len(c.pull) == 0 || len(c.parts) == 1 && len(c.pull) == 1 {
		return nil
	}
	spans := w.spans(c)
	defer func() { w.pulls = reuse.Slice(spans) }()
	for i := range spans[:max(len(spans)-1, 0)] {
		if a, b := spans[i], spans[i+1]; b.start < a.end {
			i, j := min(a.pull, b.pull), max(a.pull, b.pull)
			return errs.Invalid("push_pull: pull tensors %d (key %d) and %d (key %d) share memory; give each memory of its own", i, c.pullKeys[i], j, c.pullKeys[j])
		}
	}
	if len(c.parts) == 1 {
		return nil
	}
	for _, p := range c.parts {
		if err := p.checkPushesApart(spans); err != nil {
			return err
		}
	}
	return nil
}

// spans returns the pulls of c that have memory, by address. Under w.mu.
func (w *Worker) spans(c *call) []span {
	list := w.pulls
	sorted := true
	for _, p := range c.parts {
		for _, i := range p.pulls {
			b := c.pull[i].Bytes()
			if len(b) == 0 {
				continue
			}
			s := span{start: address(b), end: address(b) + uintptr(len(b)), pull: i, part: p}
			sorted = sorted && (len(list) == 0 || list[len(list)-1].start <= s.start)
			list = append(list, s)
		}
	}
	if !sorted {
		slices.SortFunc(list, func(a, b span) int { return cmp.Compare(a.start, b.start) })
	}
	return list
}

// checkPushesApart looks for pulls of other parts in the memory of p's pushes. The spans do not overlap.
func (p *part) checkPushesApart(spans []span) error {
	c := p.call
	for _, i := range p.pushes {
		b := c.push[i].Bytes()
		if len(b) == 0 {
			continue
		}
		start, end := address(b), address(b)+uintptr(len(b))
		at := sort.Search(len(spans), func(j int) bool { return spans[j].end > start })
		for ; at < len(spans) && spans[at].start < end; at++ {
			if s := &spans[at]; s.part != p {
				return errs.Invalid("push_pull: push tensor %d (key %d) to %s shares memory with pull tensor %d (key %d), which %s writes; give them memory of their own",
					i, c.pushKeys[i], p.server.name, s.pull, c.pullKeys[s.pull], s.part.server.name)
			}
		}
	}
	return nil
}

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
