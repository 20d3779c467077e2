package work

import (
	"time"

	"github.com/stepvan/stepvan/internal/errs"
)

// Spec is what both sides of an exchange do besides exchanging. The zero value is nothing.
type Spec struct {
	Think Times `json:"think"` // the server computes for a drawn time
	Sleep bool  `json:"sleep"` // it sleeps for that time instead, and leaves its core to others
	Fresh bool  `json:"fresh"` // each side writes all that it sends anew, and reads all that it gets
}

// Any reports whether the sides do anything.
func (s *Spec) Any() bool { return len(s.Think) > 0 || s.Fresh }

// Check refuses sizes that the work cannot use.
func (s *Spec) Check(push, pull int64) error {
	switch {
	case len(s.Think) > 0 && push < WordBytes:
		return errs.Invalid("a push of %d bytes has no room for the time that the server computes: push %d bytes at least", push, WordBytes)
	case s.Fresh && (push%WordBytes != 0 || pull%WordBytes != 0):
		return errs.Invalid("fresh bytes are whole words (got %d and %d bytes, want multiples of %d): choose other sizes", push, pull, WordBytes)
	}
	return nil
}

// The first word of a push names its exchange. It has the time in ns, and above it a number that
// differs from exchange to exchange. Fresh pushes are copies of this word.
const (
	timeBits   = 36
	timeMask   = 1<<timeBits - 1
	numberMask = 1<<27 - 1 // keeps words positive for programs without unsigned numbers
)

// answerWord is the word of a fresh answer. Only a side that has got the push can write it.
func answerWord(word uint64) uint64 { return word ^ timeMask }

// Answer is the work of the side that answers: it reads the push, computes, and writes the answer.
// The push is one of Asker.Write. Budget: 0 allocations.
func (s *Spec) Answer(pushed, answer []byte) error {
	word := words(pushed)[0]
	if s.Fresh && !filled(pushed, word) {
		return errs.Invalid("the pushed bytes are not those that the other side wrote")
	}
	if len(s.Think) > 0 {
		s.pass(min(time.Duration(word&timeMask), s.Think.most()))
	}
	if s.Fresh {
		fill(answer, answerWord(word))
	}
	return nil
}

// pass lets the time before an answer pass.
func (s *Spec) pass(d time.Duration) {
	if s.Sleep {
		sleep(d)
	} else {
		compute(d)
	}
}

// Asker is the work of the side that pushes.
type Asker struct {
	spec   Spec
	draws  draws
	number uint64 // of the last fresh push
}

// NewAsker makes an asker. Two askers of one spec draw the same times.
func NewAsker(s Spec) *Asker { return &Asker{spec: s, draws: newDraws(s.Think)} }

// Task is the work of one exchange.
type Task struct {
	Think time.Duration // how long the server computes
	word  uint64
}

// Write writes a push, of a size that Spec.Check allows. Budget: 0 allocations.
func (a *Asker) Write(push []byte) Task {
	t := Task{Think: a.draws.next()}
	t.word = uint64(t.Think)
	switch {
	case a.spec.Fresh:
		a.number++
		t.word |= (a.number & numberMask) << timeBits
		fill(push, t.word)
	case len(a.spec.Think) > 0:
		words(push)[0] = t.word
	}
	return t
}

// Read reads the answer to the push of a task. Budget: 0 allocations.
func (a *Asker) Read(t Task, answer []byte) error {
	if a.spec.Fresh && !filled(answer, answerWord(t.word)) {
		return errs.Invalid("the answer is not that to the push")
	}
	return nil
}
