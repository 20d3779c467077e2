package ps

import "github.com/stepvan/stepvan/trace"

// Trace returns what the node's ring still holds: a worker's entry per request and server, a
// server's per request; nil for the scheduler and with STEPVAN_TRACE_EVENTS=0. A
// copy, which may be taken at any time, from any goroutine.
func (n *Node) Trace() []trace.Entry {
	var all []trace.Entry
	for _, m := range n.members {
		if m.ring != nil {
			all = append(all, m.ring.Snapshot()...)
		}
	}
	return all
}
