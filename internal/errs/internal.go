package errs

import "strings"

// InternalError is a mistake of this library: a panic, which has ended the node. It says what a report must name.
type InternalError struct {
	Version string // of the library
	Node    string // "worker 3"
	Peer    string // whose message or connection it was about: "server 0 (10.0.0.7:4711)"; "" when about none
	Op      string // what was being done: "deliver a large response (request 17)"
	Panic   string // what the panic says
	Where   string // the function, file and line that panicked; "" when not known
	Stack   string // of the goroutine that panicked
}

// Error is one line. The stack is in Report.
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

// Report is Error and the stack.
func (e *InternalError) Report() string { return e.Error() + "\n" + e.Stack }
