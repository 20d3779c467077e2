package peer

import (
	"cmp"
	"fmt"

	"github.com/stepvan/stepvan"
)

// MismatchError says that the two sides of a transfer, or of a move of a plan, do not fit each other. Both sides get
// it. Of an operation of a group, all members get it. It is a [stepvan.ErrInvalid].
type MismatchError struct {
	Op     string // "recv", "plan weights"
	Peer   string // the other side: "peer 3"
	What   string // "tag 7", "move 12 (layer.0.weight)", "root"
	Mine   string // this side's: "bfloat16[2 3]"
	Theirs string // the other side's, or what is missing there

	same string // what both sides should give; "": type and number of elements
}

// Error reads "recv: peer 3: tag 7: ...".
func (e *MismatchError) Error() string {
	same := cmp.Or(e.same, "type and number of elements")
	return fmt.Sprintf("stepvan: %s: %s: %s: the two sides differ (here %s, there %s): give both the same %s",
		e.Op, e.Peer, e.What, e.Mine, e.Theirs, same)
}

// Unwrap makes it a [stepvan.ErrInvalid].
func (e *MismatchError) Unwrap() error { return stepvan.ErrInvalid }
