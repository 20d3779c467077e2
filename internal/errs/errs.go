package errs

import (
	"errors"
	"fmt"

	"github.com/stepvan/stepvan"
)

// ErrNoGrant: as many grants, or files with some, as the van has room for are out already. It may have room later.
var ErrNoGrant = fmt.Errorf("stepvan: no room for another grant: %w", stepvan.ErrNotSupported)

// Ended wraps cause as the error of op. It keeps the van and the peer of cause, and replaces its operation.
func Ended(op string, cause error) error {
	var of *stepvan.OpError
	if errors.As(cause, &of) {
		return &stepvan.OpError{Op: op, Van: of.Van, Peer: of.Peer, Err: of.Err}
	}
	return &stepvan.OpError{Op: op, Err: cause}
}

// Protocol makes a stepvan.ProtocolError with a reason. offset is where in the field's message the peer is wrong, in
// bytes.
func Protocol(field string, offset int, format string, args ...any) error {
	return &stepvan.ProtocolError{Field: field, Offset: offset, Reason: fmt.Sprintf(format, args...)}
}

// Invalid makes a stepvan.ErrInvalid with a reason.
func Invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", stepvan.ErrInvalid, fmt.Sprintf(format, args...))
}
