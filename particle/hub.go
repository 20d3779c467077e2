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
	early map[stepvan.Rank][]letter // for later loops
}

// letter is a frame that has come.
type letter struct {
	from stepvan.Rank
	body []byte
}

// maxEarly bounds the frames of a peer for loops that are not open yet, and maxEarlyBytes the length of each. A loop
// says hello and bye before it has heard of the other one, and nothing else.
const (
	maxEarly      = 1024
	maxEarlyBytes = 256
)

// hubOf returns the hub of a peer.
func hubOf(p *peer.Peer) (*hub, error) {
	type key struct{}
	h := p.Library().Keep(key{}, func() any { return &hub{peer: p, early: map[stepvan.Rank][]letter{}} }).(*hub)
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

// find returns the loop that a frame is for, or keeps the frame for a later loop. closed says that the loop was
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
	case len(body) <= maxEarlyBytes && len(h.early[from]) < maxEarly:
		h.early[from] = append(h.early[from], letter{from, slices.Clone(body)})
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
	for from, letters := range h.early {
		later := letters[:0]
		for _, m := range letters {
			if lifeOf(m.body) == h.life {
				l.early = append(l.early, m)
			} else {
				later = append(later, m)
			}
		}
		h.early[from] = later
	}
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
