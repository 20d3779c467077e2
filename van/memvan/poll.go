package memvan

import "github.com/stepvan/stepvan/van"

// burst is how many events of one endpoint are reported before others have their turn.
const burst = 32

// Poll implements van.Van. It costs what the active endpoints cost, however many
// there are, so all makes no difference. Budget: no allocation.
func (n *memVan) Poll(events []van.Event, all bool) int {
	n.turn++
	count := 0
	for count < len(events) {
		e := n.dequeue()
		if e == nil {
			break
		}
		if e.turn == n.turn {
			n.held = append(n.held, e)
			continue
		}
		k, more := e.visit(events[count:], n.turn)
		count += k
		if more {
			n.enqueue(e)
		}
	}
	for _, e := range n.held {
		n.enqueue(e)
	}
	clear(n.held)
	n.held = n.held[:0]
	return count
}

// Arm implements van.Van.
func (n *memVan) Arm() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.armed = n.first == nil
	return n.armed
}

// visit reports what happened at e; more says that there may be further events.
// An endpoint that was accepted waits for the next turn, so that the caller can
// SetUser before the first message is placed.
func (e *endpoint) visit(events []van.Event, turn uint64) (n int, more bool) {
	limit := min(len(events), burst)
	if e.peer.van.opt.Offload {
		e.runDevice()
	}
	e.conn.mu.Lock()
	defer e.conn.unlock()
	for n < limit {
		if !e.report(&events[n]) {
			return n, false
		}
		n++
		if events[n-1].Kind == van.EventAccepted {
			e.turn = turn
			return n, e.in.len() > 0 || e.conn.over
		}
	}
	return n, true
}

// enqueue puts e among the endpoints to look at. It reports whether the van must be woken.
func (n *memVan) enqueue(e *endpoint) (wake bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if e.queued {
		return false
	}
	e.queued = true
	if n.first == nil {
		n.first = e
	} else {
		n.last.next = e
	}
	n.last = e
	wake = n.armed
	n.armed = false
	return wake
}

// dequeue returns the next endpoint to look at, or nil when the queue is empty. It ends the armed state.
func (n *memVan) dequeue() *endpoint {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.armed = false
	e := n.first
	if e == nil {
		return nil
	}
	n.first = e.next
	if n.first == nil {
		n.last = nil
	}
	e.next, e.queued = nil, false
	return e
}

func (n *memVan) wake() {
	if n.opt.Wake != nil {
		n.opt.Wake()
	}
}
