package stepvan

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/stepvan/stepvan/internal/text"
)

// These are the kinds of errors. Compare with [errors.Is], since most errors are wrapped.
var (
	// ErrClosed: this program has closed the node, region, registration or connection. It wraps net.ErrClosed.
	ErrClosed error = closed{}
	// ErrNotSupported: this build, van or device cannot do the operation. It wraps errors.ErrUnsupported.
	ErrNotSupported = fmt.Errorf("stepvan: not supported: %w", errors.ErrUnsupported)
	// ErrWouldBlock: a queue is full, or a limit of memory is reached. The call had no effect. Wait for an outstanding
	// operation, then try again.
	ErrWouldBlock = errors.New("stepvan: queue full, try again after waiting for an outstanding operation")
	// ErrStale: the handle, region or registration was recycled. The thing that it named does not exist any more.
	ErrStale = errors.New("stepvan: stale handle")
	// ErrPeerLost: the peer died or left, or its connection broke.
	ErrPeerLost = errors.New("stepvan: peer lost")
	// ErrBusy: the key, chunk, buffer or region is still in use, or another goroutine is in the same call.
	ErrBusy = errors.New("stepvan: busy with an unanswered request")
	// ErrInvalid: the call does not allow this argument. The call had no effect.
	ErrInvalid = errors.New("stepvan: invalid argument")
	// ErrRemote: the peer refused the operation. The text is the peer's reason.
	ErrRemote = errors.New("stepvan: refused by peer")
	// ErrRefused: this server had to refuse one request of a batch, so the whole batch failed. The text names the
	// worker and the reason. Every worker of the batch gets an error for its request. The next batch has one request of
	// every worker again.
	ErrRefused = errors.New("stepvan: refused a request of this batch")
	// ErrNoMemory: the system or the container does not have enough memory left.
	ErrNoMemory = errors.New("stepvan: out of memory")
)

// closed is ErrClosed. It is also net.ErrClosed, whose text says nothing more.
type closed struct{}

func (closed) Error() string { return "stepvan: closed" }

func (closed) Unwrap() error { return net.ErrClosed }

// OpError says which operation failed, on which van and with which peer.
type OpError struct {
	Op   string // the operation, in the words of the API: "push_pull", "barrier", "dial"
	Van  string // the van: "shm", "tcp", "unix" or "mem"; "" for an operation above the vans
	Peer string // the peer as a person knows it: "worker 3", "server 0 (10.0.0.7:4711)"
	Err  error  // the cause
}

// Error names the operation, the van and the peer before the cause.
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

// Timeout reports whether the cause is a timeout, as [net.Error] does.
func (e *OpError) Timeout() bool {
	var t interface{ Timeout() bool }
	return errors.As(e.Err, &t) && t.Timeout()
}

// ConfigError names the setting that is missing or wrong.
type ConfigError struct {
	Key    string // the name that the user wrote or must write: "DMLC_ROLE"
	Value  string // the value that the user wrote; "" when it is missing
	Reason string // what is wrong and what to set
}

// Error reads `DMLC_ROLE="boss": must be one of ...`. It quotes only the beginning of a long value.
func (e *ConfigError) Error() string {
	if e.Value == "" {
		return e.Key + ": " + e.Reason
	}
	return fmt.Sprintf("%s=%q: %s", e.Key, text.Cut(e.Value), e.Reason)
}

// ProtocolError says that a peer sent a value that the protocol does not allow. The connection with that peer ends.
type ProtocolError struct {
	Field  string // the field of the header or of a descriptor
	Offset int    // of the field, in bytes from the start of the header, descriptor or text that was parsed
	Reason string
}

// Error names the field, its offset and the reason.
func (e *ProtocolError) Error() string {
	return fmt.Sprintf("protocol error: %s at byte %d: %s", e.Field, e.Offset, e.Reason)
}

// InternalError is a mistake of this library. A panic has ended the node. The error has all that a bug report needs.
type InternalError struct {
	Version string // of the library
	Node    string // "worker 3"
	Peer    string // the peer of the message or connection: "server 0 (10.0.0.7:4711)"; "" without a peer
	Op      string // the operation: "deliver a large response (request 17)"
	Panic   string // what the panic says
	Where   string // the function, file and line that panicked; "" when not known
	Stack   string // of the goroutine that panicked
}

// Error returns one line, without the stack. [InternalError.Report] has the stack.
func (e *InternalError) Error() string {
	var b strings.Builder
	b.WriteString("internal error: stepvan " + e.Version + ", " + e.Node + ": " + e.Op)
	if e.Peer != "" {
		b.WriteString(", peer " + e.Peer)
	}
	b.WriteString(": panic: " + e.Panic)
	if e.Where != "" {
		b.WriteString(" in " + e.Where)
	}
	b.WriteString(": this is a mistake of stepvan, and the node has ended: report it with the log of this node")
	return b.String()
}

// Report returns the text of Error, and the stack below it.
func (e *InternalError) Report() string { return e.Error() + "\n" + e.Stack }
