package worker

import (
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/wire"
)

// chunk is what a server has registered for the pushes of one key.
type chunk struct {
	target link.Target // where this worker writes them; the zero Target where the server reads them
	bytes  uint64
}

// maxChunks bounds what one server may announce. The server reads the pushes of further keys.
const maxChunks = 1 << 20

// addChunks takes an announcement. Under Worker.mu.
func (v *serverPeer) addChunks(a *wire.Announcement, generation uint32) {
	for i := range a.Keys {
		d := &a.Keys[i]
		if len(v.chunks) >= maxChunks {
			break
		}
		c := chunk{bytes: d.Bytes}
		if d.Region != 0 && v.session.OneSided() {
			c.target = link.TargetOf(d)
		}
		v.chunks[d.Key] = c
	}
	v.generation = max(v.generation, generation)
}

// removeChunks takes the end of registrations. Under Worker.mu; fenceSender.note follows.
func (v *serverPeer) removeChunks(a *wire.Announcement, generation uint32) {
	for i := range a.Keys {
		delete(v.chunks, a.Keys[i].Key)
	}
	v.generation = max(v.generation, generation)
	if generation > 0 && v.session.OneSided() { // only the last message of a withdrawal has a generation
		v.fences.request(generation)
	}
}

// announcements handles what servers say of their chunks. A later request tells with its generation which
// announcements the worker had seen.
type announcements struct{ sessionEvents }

// Place refuses payload, which announcements do not have.
func (h announcements) Place(m *link.Inbound, dst [][]byte) ([][]byte, error) {
	return dst, new(wire.Announcement).Decode(&m.Header, m.Meta)
}

// Receive implements link.Handler.
func (h announcements) Receive(m *link.Inbound) (kept bool) {
	var a wire.Announcement
	err := a.Decode(&m.Header, m.Meta)
	if err != nil {
		h.breakOff(m.Session, err)
		return false
	}
	h.take(m.Session, m.Header.Op, &a, m.Header.Generation)
	h.w.fences.send()
	return false
}

func (h announcements) take(s *link.Session, op uint8, a *wire.Announcement, generation uint32) {
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	v := h.w.sessions[s]
	switch {
	case v == nil:
	case op == wire.OpAnnounce:
		v.addChunks(a, generation)
	default:
		v.removeChunks(a, generation)
		h.w.fences.note(v)
	}
}

// Detached implements link.Detacher.
func (h announcements) Detached(s *link.Session) {
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	for _, r := range h.w.exchanges.requests.All() {
		if x := r.exchange; r.server.session == s && r.on(detachMemory) && x.state.accepted() {
			h.w.advance(x)
		}
	}
}
