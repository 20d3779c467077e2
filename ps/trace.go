package ps

import "github.com/stepvan/stepvan/trace"

// Trace returns a copy of the entries that the node still keeps, the last STEPVAN_TRACE_EVENTS: one per exchange and
// server of a worker, one per request of a server. It is nil for the scheduler. [trace.WriteJSON] writes it for
// viewers.
func (n *Node) Trace() []trace.Entry {
	var all []trace.Entry
	for _, m := range n.members {
		if m.ring != nil {
			all = append(all, m.ring.Snapshot()...)
		}
	}
	return all
}
