package particle

import (
	"slices"
	"sync"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/peer"
)

// topic is what the mail of all loops is about.
const topic peer.Topic = "particles"

// hub gives the mail of a peer to its loop. A peer has one, and it may have one loop after the other. They have
// numbers, their lives. Loops with the same life belong together.
type hub struct {
	peer   *peer.Peer
	listen sync.Once
	err    error

	mu sync.Mutex
	// +checklocks:mu
	life uint32
	// +checklocks:mu
	loop *Loop // nil: none is open
	// +checklocks:mu
	early []letter // for the next loop
	// +checklocks:mu
	bytes int // of these
}

// letter is a frame that has come.
type letter struct {
	from stepvan.Rank
	body []byte
}

// maxEarly bounds the frames for a loop that is not open yet. They are first words of others, so more is a lie.
const maxEarly = 64 << 20

// hubOf returns the hub of a peer.
func hubOf(p *peer.Peer) (*hub, error) {
	type key struct{}
	h := p.Library().Keep(key{}, func() any { return &hub{peer: p} }).(*hub)
	h.listen.Do(func() { _, h.err = p.Listen(topic, h.came) })
	return h, h.err
}

// came takes a frame. The driver calls it.
func (h *hub) came(from stepvan.Rank, body []byte) {
	if len(body) < headBytes {
		return // not of a loop
	}
	l, closed := h.find(from, body)
	switch {
	case l != nil:
		l.came(from, body)
	case closed:
		if f, err := readFrame(body); err == nil {
			discard(h.peer, from, &f, nil)
		}
	}
}

// find returns the loop that a frame is for, or keeps the frame for the next loop. closed says that the loop was
// closed.
func (h *hub) find(from stepvan.Rank, body []byte) (l *Loop, closed bool) {
	life := lifeOf(body)
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case life <= h.life:
		if life < h.life {
			return nil, true
		}
		return h.loop, h.loop == nil
	case life == h.life+1 && h.bytes+len(body) <= maxEarly:
		h.early = append(h.early, letter{from, slices.Clone(body)})
		h.bytes += len(body)
	}
	return nil, false
}

// open makes l the loop of the peer. tell gets the frames that have come before, and then all others come.
func (h *hub) open(l *Loop) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.loop != nil {
		return errs.Invalid("open: loop: this peer has one: close that first")
	}
	h.life++
	h.loop, l.life = l, h.life
	for _, m := range h.early {
		if lifeOf(m.body) == h.life {
			l.early = append(l.early, m)
		}
	}
	h.early, h.bytes = nil, 0
	return nil
}

// close ends the loop of the peer.
func (h *hub) close(l *Loop) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.loop == l {
		h.loop = nil
	}
}
