package link

import (
	"errors"
	"fmt"
	"strings"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
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

// PeerError returns the error of an operation that failed because of err with a peer. It names the peer that was lost
// first, when the error of a session tells that.
func PeerError(op, van, peer string, err error) error {
	var e *stepvan.OpError
	switch {
	case !errors.As(err, &e):
	case e.Op == "session":
		err = e.Err // which names the same peer
	case e.Peer != "" && e.Peer != peer:
		return errs.Ended(op, err) // a peer without which the cluster cannot work
	}
	if first := FirstCause(err); first != "" {
		return &stepvan.OpError{Op: op, Peer: first, Err: fmt.Errorf("%w: with it %s is lost: %w", stepvan.ErrPeerLost, peer, err)}
	}
	if errors.Is(err, ErrLeft) {
		err = fmt.Errorf("%w: %w", stepvan.ErrPeerLost, err)
	}
	return &stepvan.OpError{Op: op, Van: van, Peer: peer, Err: err}
}

// FirstCause is the instance whose loss made a peer leave, as the peer has said with Because. It is "" for other
// errors. Its length is bounded, and it is safe for logs.
func FirstCause(err error) string {
	var left *leftError
	if !errors.As(err, &left) {
		return ""
	}
	rest, hasReason := strings.CutPrefix(left.reason, because)
	name, _, ok := strings.Cut(rest, ": ")
	if !hasReason || !ok {
		return ""
	}
	return printable([]byte(text.Cut(name)))
}
