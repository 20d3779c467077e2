package errs

import (
	"errors"
	"fmt"
	"net"
	"unicode/utf8"
)

// Sentinels. Compare with errors.Is: they mostly arrive wrapped.
var (
	// ErrClosed: the node, region, registration or connection was closed by this program.
	ErrClosed = plain("stepvan: closed", net.ErrClosed)
	// ErrNotSupported: this build, van or device cannot do it.
	ErrNotSupported = fmt.Errorf("stepvan: not supported: %w", errors.ErrUnsupported)
	// ErrNoGrant: as many grants, or files with some, as the van has room for are out already. It may have room later.
	ErrNoGrant = fmt.Errorf("stepvan: no room for another grant: %w", ErrNotSupported)
	// ErrWouldBlock: a queue or window is full. The call had no effect; drive progress (wait for something) and try again.
	ErrWouldBlock = errors.New("stepvan: queue full, try again after waiting for an outstanding operation")
	// ErrStale: a handle, region or registration was recycled; what it named is gone.
	ErrStale = errors.New("stepvan: stale handle")
	// ErrNotRegistered: no registration covers this memory or key.
	ErrNotRegistered = errors.New("stepvan: not registered")
	// ErrPeerLost: the peer died, left, or its connection broke.
	ErrPeerLost = errors.New("stepvan: peer lost")
	// ErrBusy: the key, chunk or buffer still belongs to an unanswered request.
	ErrBusy = errors.New("stepvan: busy with an unanswered request")
	// ErrInvalid: an argument contradicts the contract of the call; nothing was done.
	ErrInvalid = errors.New("stepvan: invalid argument")
	// ErrRemote: the peer refused the operation; the text is the peer's reason.
	ErrRemote = errors.New("stepvan: refused by peer")
	// ErrRefused: a batch failed because this server had to refuse a request of it; the text names worker and reason.
	// Every worker of the batch has been told, and the next batch is complete again.
	ErrRefused = errors.New("stepvan: refused a request of this batch")
	// ErrNoMemory: the system or container has no memory left for it.
	ErrNoMemory = errors.New("stepvan: out of memory")
)

// OpError says which operation failed, on which van and against which peer.
type OpError struct {
	Op   string // the operation, in the words of the API: "push_pull", "barrier", "dial"
	Van  string // the van's name, or "" above the vans
	Peer string // the peer as a person knows it: "worker 3", "server 0 (10.0.0.7:4711)"
	Err  error
}

// Error names operation, van and peer before the cause.
func (e *OpError) Error() string {
	s := e.Op
	if e.Van != "" {
		s += " over " + e.Van
	}
	if e.Peer != "" {
		s += " with " + e.Peer
	}
	return s + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *OpError) Unwrap() error { return e.Err }

// Timeout reports whether the cause is a timeout, as net.Error does.
func (e *OpError) Timeout() bool {
	var t interface{ Timeout() bool }
	return errors.As(e.Err, &t) && t.Timeout()
}

// Ended says that op ended because of cause, with the peer that cause names, whose own operation it takes the place of.
func Ended(op string, cause error) error {
	var of *OpError
	if errors.As(cause, &of) {
		return &OpError{Op: op, Van: of.Van, Peer: of.Peer, Err: of.Err}
	}
	return &OpError{Op: op, Err: cause}
}

// ConfigError names the setting that is missing or wrong.
type ConfigError struct {
	Key    string // the name that the user wrote or must write: "DMLC_ROLE"
	Value  string // what it was, "" when missing
	Reason string // what is wrong and what to set
}

// Error reads `DMLC_ROLE="boss": must be one of ...`.
func (e *ConfigError) Error() string {
	if e.Value == "" {
		return e.Key + ": " + e.Reason
	}
	return fmt.Sprintf("%s=%q: %s", e.Key, Cut(e.Value), e.Reason)
}

// longest is how much of a text an error quotes, in bytes.
const longest = 200

// Cut is what an error says of a text that a program, a user or a peer has chosen, however long: the text,
// or its beginning and how many bytes it has.
func Cut(text string) string {
	if len(text) <= longest {
		return text
	}
	end := longest
	for end > longest-utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end--
	}
	return fmt.Sprintf("%s... (%d bytes)", text[:end], len(text))
}

// ProtocolError is a peer's byte that cannot be: it costs the peer its connection.
type ProtocolError struct {
	Field  string // header or descriptor field
	Offset int    // byte offset of the field in what was parsed
	Reason string
}

// Error names field and offset.
func (e *ProtocolError) Error() string {
	return fmt.Sprintf("protocol error: %s at byte %d: %s", e.Field, e.Offset, e.Reason)
}

// Invalid makes an ErrInvalid with a reason.
func Invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}
