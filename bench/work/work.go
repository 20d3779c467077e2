package work

import (
	"encoding/binary"
	"time"
)

// TimeBytes is how many bytes a push needs for the time that the server computes.
const TimeBytes = 8

// Spec is what both sides of an exchange do besides exchanging. The zero value is nothing.
type Spec struct {
	Think Times `json:"think"` // the server computes for a drawn time
}

// Any reports whether the sides do anything.
func (s *Spec) Any() bool { return len(s.Think) > 0 }

// Answer is the work of the side that answers, between push and answer. The push is one of
// Asker.Write. Budget: 0 allocations.
func (s *Spec) Answer(pushed []byte) {
	if len(s.Think) > 0 {
		wanted := time.Duration(binary.NativeEndian.Uint64(pushed))
		compute(min(max(wanted, 0), s.Think.most()))
	}
}

// Asker is the work of the side that pushes.
type Asker struct {
	spec  Spec
	draws draws
}

// NewAsker makes an asker. Two askers of one spec draw the same times.
func NewAsker(s Spec) *Asker { return &Asker{spec: s, draws: newDraws(s.Think)} }

// Task is the work of one exchange.
type Task struct {
	Think time.Duration // how long the server computes
}

// Write writes a push, which has TimeBytes at least. Budget: 0 allocations.
func (a *Asker) Write(push []byte) (t Task) {
	if len(a.spec.Think) > 0 {
		t.Think = a.draws.next()
		binary.NativeEndian.PutUint64(push, uint64(t.Think))
	}
	return t
}
