package peer

// relay is the part of an edge that is in a chain, at a receiver. Peer.mu guards it.
//
// A receiver announces a version to those behind it as soon as it hears of it, even before its own program begins. So
// programs that wait for [Plan.Offered] never wait for each other. It passes a chunk on when the chunk has landed,
// out of the destination, which stays as it is until the end of the run.
type relay struct {
	edge *edge
	from *edge   // of an edge that passes on: the one that brings the elements
	next []*edge // of an edge that brings them: those that pass them on

	// Of an edge that passes on.
	announced uint64 // the version that the other end knows of, and has not finished; 0 for none
	later     uint64 // the version to announce after that, or when the number of the other end is known
	ready     bool   // the other end wants the elements of that version

	// late says that this end, where it copies by itself, waits until the other end says that everything is there. That
	// is so where another receiver passes on.
	late bool
}

// passes reports whether e passes on what another edge brings.
func (e *edge) passes() bool { return e.relay != nil && e.relay.from != nil }

// copiesLate reports whether this end copies what another receiver passes on.
func (e *edge) copiesLate() bool { return e.relay != nil && e.relay.late && !e.viewed.empty() }

// landed reports whether a chunk that e passes on has landed, in the run that e is in.
func (r *relay) landed(chunk int) bool {
	return !r.from.pending || chunk < r.from.flow.landed
}

// announce announces a version, which is offered, to the receivers behind this edge.
func (r *relay) announce(version uint64) {
	if r == nil {
		return
	}
	for _, o := range r.next {
		o.relay.later = version
		o.relay.announceNext()
	}
}

// announceNext announces the next version to the other end, once that is possible.
func (r *relay) announceNext() {
	if r == nil || r.later == 0 || r.announced != 0 || r.edge.theirs == 0 || r.edge.state != edgeIdle {
		return
	}
	r.announced, r.later = r.later, 0
	r.edge.tell(opOpen, r.announced)
}

// wanted notes that the other end wants the elements of a version. It reports whether it may.
func (r *relay) wanted(version uint64) bool {
	if version == 0 || r.announced != version || r.ready || r.edge.state != edgeIdle {
		return false
	}
	r.ready = true
	r.passOn()
	return true
}

// passOn begins to pass on, when both ends are ready and the elements come. Where memory is shared, they are all there
// before.
func (r *relay) passOn() {
	e := r.edge
	if !r.ready || !e.pending || e.state != edgeIdle {
		return
	}
	if r.from.pending && (r.from.state != edgeRunning || e.streamed.empty()) {
		return
	}
	r.ready = false
	e.begin()
	if !e.viewed.empty() && e.state == edgeRunning {
		e.remote.note(opWritten, e.theirs) // the receiver may copy
	}
}

// passAll has the receivers behind this edge get on.
func (r *relay) passAll() {
	if r == nil {
		return
	}
	for _, o := range r.next {
		if o.state == edgeIdle {
			o.relay.passOn()
		} else {
			o.pack()
		}
	}
}

// arrived notes the end of a run of the edge.
func (r *relay) arrived() {
	r.passAll()
	if r != nil && r.from != nil {
		r.announced = 0
		r.announceNext()
	}
}
