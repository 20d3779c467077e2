package link

import (
	"errors"
	"strings"

	"github.com/stepvan/stepvan/internal/text"
)

// leftError is the loss of a peer that said why it left.
type leftError struct{ reason string } // as wire.Text reads it

// Error names the reason, or its beginning.
func (e *leftError) Error() string { return ErrLeft.Error() + ": " + text.Cut(e.reason) }

// Unwrap returns ErrLeft.
func (e *leftError) Unwrap() error { return ErrLeft }

const because = "because of "

// Because makes the reason of a goodbye that the loss of another instance has caused. lost names that instance
// ("worker 3").
func Because(lost, text string) string { return because + lost + ": " + text }

// FirstCause is the instance whose loss made a peer leave, as the peer has said with Because. It is "" for other
// errors. Its length is bounded, and it is safe for logs.
func FirstCause(err error) string {
	var left *leftError
	if !errors.As(err, &left) {
		return ""
	}
	rest, told := strings.CutPrefix(left.reason, because)
	name, _, ok := strings.Cut(rest, ": ")
	if !told || !ok {
		return ""
	}
	return printable([]byte(text.Cut(name)))
}
