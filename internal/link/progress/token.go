package progress

import "sync/atomic"

// token is the right to drive, and what whoever gives it back must know, in one word: so taking and giving it
// are one uncontended atomic operation each.
type token struct{ word atomic.Uint64 }

const (
	held    uint64 = 1 << iota // somebody drives
	closed                     // nobody takes it any more
	watched                    // waiters are parked
	stuck                      // output waits for room, so the source must be watched
	called                     // the driver was asked for while somebody drove
	oneTurn                    // lowest bit of the number of times that it was taken

	// attention is what giving it back must not overlook.
	attention = watched | stuck | called
)

// take takes the token if nobody has it.
func (t *token) take() bool {
	for {
		w := t.word.Load()
		if w&(held|closed) != 0 {
			return false
		}
		if t.word.CompareAndSwap(w, (w|held)+oneTurn) {
			return true
		}
	}
}

// seize takes the token of a closed engine if nobody has it.
func (t *token) seize() bool {
	w := t.word.Load()
	return w&held == 0 && t.word.CompareAndSwap(w, w|held)
}

// give gives the token back; false when somebody wants attention first.
func (t *token) give() bool {
	w := t.word.Load()
	return w&attention == 0 && t.word.CompareAndSwap(w, w&^held)
}

// drop gives the token back whatever there is, clears bits, and returns what there was: who sets a
// bit while somebody drives must not be overlooked.
func (t *token) drop(bits uint64) (was uint64) { return t.word.And(^(held | bits)) }

func (t *token) has(bits uint64) bool { return t.word.Load()&bits != 0 }

// mark sets bits and reports whether somebody drove at that moment.
func (t *token) mark(bits uint64) (driven bool) { return t.word.Or(bits)&held != 0 }

// turns is how often the token has been taken, in units of oneTurn.
func (t *token) turns() uint64 { return t.word.Load() &^ (oneTurn - 1) }
