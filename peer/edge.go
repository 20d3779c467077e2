package peer

import (
	"encoding/binary"
	"unsafe"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/slots"
)

// edge is one end of what a peer sends another in one go: a transfer, or what a plan moves between the two. It has a
// cargo for each way that bytes take:
//
//   - viewed: the receiver copies out of the sender's memory, which it sees, and says done;
//   - written: the sender copies into the receiver's memory, which it sees, and says that it has written;
//   - streamed: neither sees the memory of the other, so the chunks travel in messages.
//
// What the receiver merges is in none of them (merges).
//
// It runs once, or again and again. Peer.mu guards it, except for what the movers read during a run.
type edge struct {
	id     slots.ID // of this end
	theirs uint64   // of the other end
	remote *remote
	link   *link.Session // that it runs over
	lost   bool          // nothing can come over link any more
	out    bool          // this end sends
	owner  edgeOwner

	viewed, written, streamed cargo
	merges                    *mergeShare // of a plan: what the receiver merges; nil for nothing
	views                     []link.View // of memory of the other end
	copying                   task        // this end's share of viewed or written
	packing                   task        // sends chunks

	state   edgeState
	missing edgeStep // what the run still waits for
	flow    flow
	busy    int    // tasks and chunks that touch memory of this end
	exposed bool   // the other end may touch memory of this end, although the edge has failed
	owes    bool   // the other end waits for opQuiet
	ending  error  // why e fails after the run: the other end has had all of it, and ends e
	helped  bool   // the caller works on copying, once it has unlocked
	pending bool   // of a plan: the run waits for it
	offered uint64 // of a plan: the version that the other end offers; 0 for none
	relay   *relay // of a chain; nil for others
}

// flow is how far the chunks of an edge are.
type flow struct {
	next     int    // the chunk that is sent next, or the first one that has not come
	early    uint64 // chunks that have come before next: bit 0 is chunk next
	inflight int    // chunks that the other end has not acknowledged, and pieces
	landed   int    // chunks that have come
	packer   bool   // packing runs
}

// edgeOwner is a transfer or a plan. The calls come under Peer.mu.
type edgeOwner interface {
	// arrived says that the run of e is over, without an error.
	arrived(e *edge)
	// failed says that e has failed, once. Its memory may still be in use.
	failed(e *edge, err error)
	// quiet says that the memory of e, which has failed, is not in use any more, here or at the other end.
	quiet(e *edge)
}

// edgeState is where an edge is in its life.
type edgeState uint8

const (
	edgeIdle    edgeState = iota // between two runs
	edgeRunning                  //
	edgeFailed                   // for good
	edgeQuiet                    // and nobody uses its memory any more
)

// edgeStep is a set of steps.
type edgeStep uint8

const (
	stepCopy   edgeStep = 1 << iota // this end's own copies
	stepStream                      // all have gone and are acknowledged, or all have come
	stepNote                        // the other end says that its copies are made: opDone or opWritten
	stepMerge                       // this end has merged what the other end brings
)

// chunksInFlight is how many chunks of an edge may be on their way. One is received while the next is packed.
const chunksInFlight = 4

// askEvery is how many chunks are acknowledged at once. The sender waits for that when chunksInFlight are on their way,
// and with the last one it is done. Otherwise the acknowledgement would wait for a message that carries it.
const askEvery = chunksInFlight / 2

// edgeTable gives edges numbers. Peer.mu guards it.
type edgeTable struct{ ends slots.Table[edgeSlot] }

type edgeSlot struct{ edge *edge }

// edgeList has the edges that name a remote and have not ended.
type edgeList struct{ edges map[*edge]struct{} }

// fail fails all edges. None of them tells the other end, and none waits for it: they are all lost before the first
// fails, which may fail others.
func (l *edgeList) fail(cause error) {
	for e := range l.edges {
		e.lost = true
	}
	for e := range l.edges {
		e.fail(cause)
	}
}

// open gives e its number. The owner has set remote, out and owner.
func (e *edge) open() {
	p := e.remote.peer
	var slot *edgeSlot
	e.id, slot = p.edges.ends.Take()
	slot.edge = e
	e.link = e.remote.session // nil for a transfer of this process to itself
	e.state, e.theirs, e.lost, e.exposed, e.owes, e.ending = edgeIdle, 0, false, false, false, nil
	if e.copying.copy == nil {
		e.copying.copy, e.copying.done = e.copyChunk, e.copied
		e.packing.copy, e.packing.done = e.sendChunks, e.packed
	}
	if e.remote.open.edges == nil {
		e.remote.open.edges = map[*edge]struct{}{}
	}
	e.remote.open.edges[e] = struct{}{}
}

// close ends the number of e, and gives the views back. No task runs.
func (e *edge) close() {
	p := e.remote.peer
	p.edges.ends.Free(e.id)
	delete(e.remote.open.edges, e)
	e.dropViews()
	e.viewed.reset()
	e.written.reset()
	e.streamed.reset()
	e.link, e.state = nil, edgeQuiet
}

// dropViews gives the memory of the other end back.
func (e *edge) dropViews() {
	for i := range e.views {
		e.views[i].Release()
	}
	clear(e.views)
	e.views = e.views[:0]
}

// see returns the first element of a view of the other end, if this process sees it.
func (e *edge) see(f *form, rights link.Rights) unsafe.Pointer {
	if f.place.IsZero() || !e.link.Caps().Views {
		return nil
	}
	v, err := e.link.Map(f.place, f.span(), rights)
	if err != nil {
		return nil
	}
	e.views = append(e.views, v)
	return unsafe.Pointer(unsafe.SliceData(v.Bytes))
}

// begin starts a run at this end. The other end has said that it is ready, too.
func (e *edge) begin() {
	e.state, e.missing = edgeRunning, 0
	e.flow.next, e.flow.early, e.flow.inflight, e.flow.landed = 0, 0, 0, 0
	own, others := &e.viewed, &e.written
	if e.out {
		own, others = others, own
	}
	if !own.empty() {
		e.missing |= stepCopy
	}
	if !others.empty() || e.copiesLate() {
		e.missing |= stepNote
	}
	if !e.streamed.empty() {
		e.missing |= stepStream
	}
	if e.merges != nil {
		e.missing |= e.merges.begin(e.out)
	}
	if !own.empty() && !e.copiesLate() {
		e.copy(own)
	}
	if e.out && !e.streamed.empty() {
		e.pack()
	}
	e.step(0)
}

// copy has this end make its copies.
func (e *edge) copy(own *cargo) {
	e.busy++
	p := e.remote.peer
	if e.helped {
		p.movers.share(&e.copying, len(own.chunks))
		return
	}
	p.run(&e.copying, len(own.chunks), own.bytes)
}

// copyChunk makes this end's copy of a chunk. Movers call it.
func (e *edge) copyChunk(i int) {
	if e.out {
		e.written.copyOut(i)
	} else {
		e.viewed.copyIn(i)
	}
}

// copied ends the copies of this end. Movers call it.
func (e *edge) copied() {
	p := e.remote.peer
	p.mu.Lock()
	defer p.unlock()
	e.busy--
	e.made(stepCopy)
	e.checkQuiet()
}

// made notes that this end has made its copies, or its merge. The other end learns when both are made.
func (e *edge) made(own edgeStep) {
	if e.state != edgeRunning {
		return
	}
	if !e.out && len(e.views) > 0 && e.views[0].OwnerEnded() {
		return // its program may have written to what was copied. The loss comes, and fails the run
	}
	if e.missing&(stepCopy|stepMerge) == own {
		note := opDone
		if e.out {
			note = opWritten
		}
		if e.theirs != 0 {
			e.remote.note(note, e.theirs)
		} else if t, ok := e.owner.(*transfer); ok {
			t.leavePartner(stepNote) // within this process
		}
	}
	e.step(own)
}

// step notes that a step of the run has been made. The last one ends the run.
func (e *edge) step(made edgeStep) {
	e.missing &^= made
	if e.missing == 0 && e.state == edgeRunning {
		e.state = edgeIdle
		e.owner.arrived(e)
	}
}

// fail ends e for good, tells the other end, and stops the tasks.
func (e *edge) fail(err error) {
	if e.state >= edgeFailed {
		return
	}
	whole := byte(0)
	if !e.out && e.state == edgeIdle {
		whole = 1
	}
	e.state, e.ending = edgeFailed, nil
	e.copying.stop.Store(true)
	e.packing.stop.Store(true)
	if e.theirs != 0 {
		e.exposed = true // until the other end says that it is quiet, or can reach nothing any more
		if !e.lost {
			m := e.remote.message(opFail, e.theirs)
			m.meta = binary.LittleEndian.AppendUint64(m.meta, uint64(e.id))
			m.meta = appendReason(append(m.meta, whole), err)
			e.remote.send(m)
		}
	}
	e.owner.failed(e, err)
	e.checkQuiet()
}

// checkQuiet tells the owner of an edge that has failed when nobody uses its memory any more.
func (e *edge) checkQuiet() {
	if e.state != edgeFailed || e.busy > 0 {
		return
	}
	e.dropViews()
	if e.owes && !e.lost {
		e.remote.note(opQuiet, e.theirs)
	}
	e.owes = false
	if !e.exposed {
		e.state = edgeQuiet
		e.owner.quiet(e)
	}
}

// peerFailed ends e because the other end has given up. whole says that it had all that it receives.
func (e *edge) peerFailed(id uint64, whole bool, why error) {
	if id == 0 { // the other end has nothing of this plan any more
		e.lost = true
		e.fail(e.remote.failure("transfer", why))
		e.exposed = false
		e.checkQuiet()
		return
	}
	if e.state == edgeQuiet {
		e.remote.note(opQuiet, id)
		return
	}
	e.theirs, e.owes = id, true
	if e.state == edgeFailed {
		e.checkQuiet()
		return
	}
	err := e.remote.failure("transfer", why)
	if whole && e.out && e.state == edgeRunning && e.missing == stepStream {
		e.ending = err // the van has not said yet that the last chunks are there
		return
	}
	e.fail(err)
}

// detached says that the peer of s reaches nothing any more.
func (t *edgeTable) detached(s *link.Session) {
	for _, slot := range t.ends.All() {
		if e := slot.edge; e.link == s && e.lost && e.exposed {
			e.exposed = false
			e.checkQuiet()
		}
	}
}

// find returns the edge that m is about. It is nil for one that has ended here.
func (t *edgeTable) find(r *remote, m *link.Inbound) (*edge, error) {
	id := slots.ID(m.Header.Request)
	slot := t.ends.Find(id)
	switch {
	case slot == nil && t.ends.Named(id):
		return nil, nil
	case slot == nil || slot.edge.remote != r:
		return nil, errs.Protocol("request", 56, "message %d of a peer names %#x, which it does not have", m.Header.Op, uint64(id))
	}
	return slot.edge, nil
}

// noted handles the notes of the other end of an edge.
func (t *edgeTable) noted(r *remote, m *link.Inbound) error {
	e, err := t.find(r, m)
	o := op(m.Header.Op)
	if err == nil && o == opFail {
		return t.peerFailed(r, e, m.Meta)
	}
	if err != nil || e == nil {
		return err
	}
	switch {
	case o == opQuiet:
		e.exposed = false
		e.checkQuiet()
	case e.state >= edgeFailed:
	case e.state != edgeRunning || e.missing&stepNote == 0 || e.out != (o == opDone):
		return errs.Protocol("op", 7, "note %d of a peer does not fit the state of what it names", o)
	default:
		e.step(stepNote)
		if e.copiesLate() && !e.out && e.state == edgeRunning {
			e.copy(&e.viewed)
		}
		e.checkStreamed()
	}
	return nil
}

// peerFailed handles opFail for e, which is nil when it has ended here.
func (t *edgeTable) peerFailed(r *remote, e *edge, meta []byte) error {
	d := decode(meta)
	id, whole, why := d.u64(), d.u8() == 1, d.reason()
	if err := d.end(); err != nil {
		return err
	}
	if e == nil {
		if id != 0 { // else the other end has nothing that waits for it
			r.note(opQuiet, id)
		}
		return nil
	}
	e.peerFailed(id, whole, why)
	return nil
}
