package peer

// relay is the part of an edge in a chain of a receiver. Peer.mu guards it.
//
// A receiver tells those behind it of a version as soon as it hears of it, whether or not its own program has begun. So
// programs that wait for [Plan.Offered] never wait for each other. It passes a chunk on when the chunk has landed, out
// of the destination, which stays as it is until the end of the run.
type relay struct {
	from  *edge   // of an edge that passes on: the one that brings the elements
	next  []*edge // of an edge that brings them: those that pass them on
	told  uint64  // the version that the other end knows of, and has not finished; 0 for none
	later uint64  // the version to tell after that, or when the number of the other end is known
	ready bool    // the other end wants the elements of that version
	// late says of an edge that brings elements which another receiver passes on: where this end copies them by itself,
	// it waits until the other end says that they are there.
	late bool
}

// passes reports whether e passes on what another edge brings.
func (e *edge) passes() bool { return e.relay != nil && e.relay.from != nil }

// has reports whether a chunk has landed at this end, in the run that e is in or has ended.
func (e *edge) has(chunk int) bool {
	return !e.pending || chunk < e.flow.landed
}

// hear tells the receivers behind e of a version that is offered.
func (e *edge) hear(version uint64) {
	if e.relay == nil {
		return
	}
	for _, o := range e.relay.next {
		o.relay.later = version
		o.tellNext()
	}
}

// tellNext tells the other end of the next version, once it can be told.
func (e *edge) tellNext() {
	r := e.relay
	if r == nil || r.later == 0 || r.told != 0 || e.theirs == 0 || e.state != edgeIdle {
		return
	}
	r.told, r.later = r.later, 0
	e.tell(opOpen, r.told)
}

// wanted notes that the other end wants the elements of a version. It reports whether it may.
func (e *edge) wanted(version uint64) bool {
	r := e.relay
	if version == 0 || r.told != version || r.ready || e.state != edgeIdle {
		return false
	}
	r.ready = true
	e.passOn()
	return true
}

// passOn begins to pass on, when both ends are ready and the elements come. Where memory is shared, they are all there
// before.
func (e *edge) passOn() {
	r := e.relay
	if !r.ready || !e.pending || e.state != edgeIdle {
		return
	}
	from := r.from
	if from.pending && (from.state != edgeRunning || e.streamed.empty()) {
		return
	}
	r.ready = false
	e.begin()
	if !e.viewed.empty() && e.state == edgeRunning {
		e.remote.note(opWritten, e.theirs) // the receiver may copy
	}
}

// copiesLate reports whether this end copies what another receiver passes on.
func (e *edge) copiesLate() bool { return e.relay != nil && e.relay.late && !e.viewed.empty() }

// passAll has the receivers behind e get on.
func (e *edge) passAll() {
	if e.relay == nil {
		return
	}
	for _, o := range e.relay.next {
		if o.state == edgeIdle {
			o.passOn()
		} else {
			o.pack()
		}
	}
}

// passed notes the end of a run of an edge that passes on.
func (e *edge) passed() {
	if e.passes() {
		e.relay.told = 0
		e.tellNext()
	}
}
