package peer

import (
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/wire"
)

// pack has chunks sent, unless a goroutine does so, or too many are on their way. Under Peer.mu.
func (e *edge) pack() {
	if e.flow.packer || !e.hasChunk() {
		return
	}
	e.flow.packer = true
	e.busy++
	bytes := e.streamed.bytes
	if e.merges != nil {
		bytes += e.merges.pulled
	}
	e.remote.peer.run(&e.packing, 1, bytes)
}

// hasChunk reports whether a chunk or a piece can be sent.
func (e *edge) hasChunk() bool {
	if e.state != edgeRunning || e.flow.inflight == chunksInFlight {
		return false
	}
	if e.flow.next < len(e.streamed.chunks) {
		return !e.passes() || e.relay.landed(e.flow.next)
	}
	return e.merges != nil && e.merges.queue.count > 0
}

// sendChunks sends chunks while there is room for them. A mover calls it.
func (e *edge) sendChunks(int) {
	for {
		m, i, piece := e.takeChunk()
		switch {
		case m == nil:
			return
		case i < 0:
			e.merges.fill(m, &piece)
		default:
			e.fillChunk(m, i)
		}
		e.sendChunk(m)
	}
}

// takeChunk makes a message for the next chunk, or for a piece, which has the number -1. It returns nil when nothing
// can be sent.
func (e *edge) takeChunk() (m *message, chunk int, piece pull) {
	p := e.remote.peer
	p.mu.Lock()
	defer p.unlock()
	if !e.hasChunk() {
		return nil, 0, piece
	}
	e.flow.inflight++
	e.busy++
	if chunk = e.flow.next; chunk < len(e.streamed.chunks) {
		e.flow.next++
		m = e.remote.message(opChunk, e.theirs)
		m.out.Generation = uint32(chunk)
		if e.flow.next == len(e.streamed.chunks) || e.flow.next%askEvery == 0 {
			m.out.Flags = wire.FlagAckNow
		}
	} else {
		at := e.merges.queue.first
		m, chunk, piece = e.remote.message(opPiece, e.theirs), -1, e.merges.queue.pop()
		m.out.Generation = uint32(at) // the same at the receiver
	}
	m.out.Channel, m.owner = link.ChannelPeerBulk, (*chunkSender)(e)
	return m, chunk, piece
}

// fillChunk gives m the bytes of chunk i. A socket takes long runs from where they lie. All else is packed, and a van
// with shared memory passes on packed bytes without a copy of its own.
func (e *edge) fillChunk(m *message, i int) {
	if !e.link.Caps().OneSided {
		if m.list = e.streamed.appendSources(i, m.list); len(m.list) > 0 {
			return
		}
	}
	n := int(e.streamed.size(i))
	b := m.packed(e.remote.peer, n)
	e.streamed.pack(i, b)
	m.list = append(m.list, b)
}

// packed returns n bytes for the payload of m.
func (m *message) packed(p *Peer, n int) []byte {
	if region, err := p.link.Memory().Get(n); err == nil {
		m.region = region
		return region.Bytes()[:n]
	}
	if cap(m.small) < n { // the pool is full: the bytes travel by way of the van's own memory
		m.small = make([]byte, n)
	}
	return m.small[:n]
}

func (e *edge) sendChunk(m *message) {
	p := e.remote.peer
	p.mu.Lock()
	defer p.unlock()
	if e.lost {
		p.outbox.finish(m, errClosed)
		return
	}
	e.remote.send(m)
}

// packed ends packing. A mover calls it.
func (e *edge) packed() {
	p := e.remote.peer
	p.mu.Lock()
	defer p.unlock()
	e.flow.packer = false
	e.busy--
	e.pack() // there may be room meanwhile
	e.checkStreamed()
	e.checkQuiet()
}

// chunkSender is an edge that learns the end of its chunks.
type chunkSender edge

func (o *chunkSender) sent(_ *message, err error) {
	e := (*edge)(o)
	e.flow.inflight--
	e.busy--
	switch {
	case e.state != edgeRunning:
		e.checkQuiet()
	case err != nil:
		e.fail(e.remote.failure("transfer", err))
	default:
		e.pack()
		e.checkStreamed()
	}
}

// checkStreamed notes that all chunks have gone and are acknowledged. The goroutine that has sent them looks at e no
// more, since e may be used again from here on. Pieces may be asked for until the receiver says that it has merged
// them.
func (e *edge) checkStreamed() {
	if !e.out || e.state != edgeRunning || e.flow.packer || e.flow.next < len(e.streamed.chunks) || e.flow.inflight > 0 {
		return
	}
	if e.merges != nil && e.merges.pulled > 0 && e.missing&stepNote != 0 {
		return
	}
	e.step(stepStream)
	if e.ending != nil {
		e.fail(e.ending)
	}
}

// expect checks that m is a chunk that comes next, and counts it. A large one may be placed before a small one is
// received that was sent earlier. It returns nil for a chunk of an edge that has
// ended, or has failed.
func (t *edgeTable) expect(r *remote, m *link.Inbound) (*edge, error) {
	e, err := t.find(r, m)
	if err != nil || e == nil || e.state >= edgeFailed {
		return nil, err
	}
	i := int(m.Header.Generation)
	ahead := i - e.flow.next
	if e.out || e.state != edgeRunning || ahead < 0 || ahead >= chunksInFlight || e.flow.early>>ahead&1 != 0 || i >= len(e.streamed.chunks) {
		return nil, errs.Protocol("generation", 64, "chunk %d of a peer does not come next (want %d of %d)", i, e.flow.next, len(e.streamed.chunks))
	}
	if n := e.streamed.size(i); m.Header.Total != uint64(n) {
		return nil, errs.Protocol("total", 88, "chunk %d of a peer has %d bytes, want %d", i, m.Header.Total, n)
	}
	for e.flow.early |= 1 << ahead; e.flow.early&1 != 0; e.flow.early >>= 1 {
		e.flow.next++
	}
	e.busy++
	m.User = e
	return e, nil
}

// placeChunk says where a chunk goes. Under Peer.mu.
func (t *edgeTable) placeChunk(p *Peer, m *link.Inbound, dst [][]byte) ([][]byte, error) {
	r := p.ids[m.Session.Peer().ID]
	if r == nil || r.session != m.Session {
		return dst, nil
	}
	e, err := t.expect(r, m)
	if e == nil {
		return dst, err
	}
	return e.streamed.appendDestinations(int(m.Header.Generation), dst), nil
}

// receiveChunk takes a chunk that is whole.
func (h bulkHandler) receiveChunk(m *link.Inbound) error {
	p := h.p
	e, err := h.expectChunk(m)
	if e == nil {
		return err
	}
	if m.Refused != nil {
		p.mu.Lock()
		defer p.unlock()
		e.unplaced()
		e.fail(e.remote.failure("transfer", m.Refused))
		return nil
	}
	if len(m.Payload) > 0 {
		e.streamed.unpack(int(m.Header.Generation), m.Payload)
	}
	p.mu.Lock()
	defer p.unlock()
	e.unplaced()
	if i := int(m.Header.Generation); i != e.flow.landed && e.state == edgeRunning {
		return errs.Protocol("generation", 64, "chunk %d of a peer does not come next (want %d of %d)", i, e.flow.landed, len(e.streamed.chunks))
	}
	if e.flow.landed++; e.flow.landed == len(e.streamed.chunks) {
		e.step(stepStream)
	}
	e.relay.passAll()
	return nil
}

// expectChunk returns the edge of a chunk. It is nil for a chunk that was dropped because there was no memory for it,
// and whose edge had ended before.
func (h bulkHandler) expectChunk(m *link.Inbound) (*edge, error) {
	if e, ok := m.User.(*edge); ok || m.Refused != nil {
		return e, nil
	}
	p := h.p
	p.mu.Lock()
	defer p.unlock()
	r := p.ids[m.Session.Peer().ID]
	if r == nil || r.session != m.Session {
		return nil, nil
	}
	return p.edges.expect(r, m)
}

// unplaced says that the link does not write to the memory of a chunk any more. Under Peer.mu.
func (e *edge) unplaced() {
	e.busy--
	e.checkQuiet()
}
