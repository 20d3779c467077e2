package progress

import "sync/atomic"

// token is the right to drive, together with what the holder must know when it gives the token back. All of it is one
// word, so that taking and giving are one uncontended atomic operation each.
type token struct{ word atomic.Uint64 }

const (
	held    uint64 = 1 << iota // somebody drives
	closed                     // nobody takes the token any more
	parked                     // waiters are parked
	stuck                      // output waits for room, so the source must be watched
	asked                      // the background driver was woken while somebody drove
	oneTurn                    // lowest bit of the number of times that the token was taken

	// attention are the bits that the holder must handle before it gives the token back.
	attention = parked | stuck | asked
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

// takeClosed takes the token of a closed engine if nobody has it.
func (t *token) takeClosed() bool {
	w := t.word.Load()
	return w&held == 0 && t.word.CompareAndSwap(w, w|held)
}

// give gives the token back. It returns false, and the caller keeps the token, when a bit of attention is set.
func (t *token) give() bool {
	w := t.word.Load()
	return w&attention == 0 && t.word.CompareAndSwap(w, w&^held)
}

// giveAndClear gives the token back, clears bits, and returns the bits before. One operation does both, so that no bit
// that is set meanwhile gets lost.
func (t *token) giveAndClear(bits uint64) (was uint64) { return t.word.And(^(held | bits)) }

func (t *token) has(bits uint64) bool { return t.word.Load()&bits != 0 }

// mark sets bits and reports whether somebody drove at that moment.
func (t *token) mark(bits uint64) (driven bool) { return t.word.Or(bits)&held != 0 }

func (t *token) clear(bits uint64) { t.word.And(^bits) }

// turns counts how often the token has been taken, in units of oneTurn.
func (t *token) turns() uint64 { return t.word.Load() &^ (oneTurn - 1) }
