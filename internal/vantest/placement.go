package vantest

import (
	"math/rand/v2"

	"github.com/stepvan/stepvan/internal/wire"
)

// placement is fenced, poisoned memory for one payload.
type placement struct {
	arena    []byte
	segments [][]byte
	fences   [][]byte
}

const fence = 3 // bytes between segments: what follows them is not aligned

func newPlacement(size, parts int) *placement {
	w := &placement{arena: make([]byte, size+fence*(parts+1))}
	paint(poison, w.arena)
	plan := cutUp(w.arena[:size], parts, rand.New(rand.NewPCG(uint64(size), uint64(parts))))
	at := 0
	for _, part := range plan {
		w.fences = append(w.fences, w.arena[at:at+fence])
		at += fence
		w.segments = append(w.segments, w.arena[at:at+len(part):at+len(part)])
		at += len(part)
	}
	w.fences = append(w.fences, w.arena[at:at+fence])
	paint(canary, w.fences...)
	return w
}

// examine fails unless the payload of h is here, and nothing around it was touched.
func (w *placement) examine(t *trial, h *wire.Header, when string) {
	if at := payloadOf(h.Request, h.Sequence).differs(w.segments...); at >= 0 {
		t.fail(clauseOf(when, w.blame(at)), "payload of message %d (%s) differs at byte %d of %d", h.Sequence, when, at, h.Payload)
	}
	for i, f := range w.fences {
		if unpainted(canary, f) >= 0 {
			t.fail(8, "the van wrote outside the Placer's memory, at segment %d of message %d", i, h.Sequence)
		}
	}
}

// blame says which clause the wrong byte at an offset violates. A byte that is still poison has not
// come yet. A byte of junk was taken from the source after its completion.
func (w *placement) blame(at int) int {
	for _, s := range w.segments {
		if at < len(s) {
			if s[at] == junk {
				return 2
			}
			return 3
		}
		at -= len(s)
	}
	return 3
}
