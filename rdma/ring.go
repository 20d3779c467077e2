package rdma

import (
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/verbs"
)

// peerRing is the ring of the peer, to which messages are written with an immediate (Options.Immediate). Without one
// they are sent. Message slot n goes to place n-1 modulo the slots of the ring. A receive is consumed in both cases.
type peerRing struct {
	address   uint64
	key       verbs.RemoteKey
	slots     uint32 // 0: the peer has no ring
	slotBytes uint32
}

// The immediate has the place above the length.
const lengthBits = 17

// direct has a request write message slot number, of n bytes, to its place.
func (g *peerRing) direct(r *verbs.Request, number uint32, n int) {
	if g.slots == 0 {
		return
	}
	at := (number - 1) % g.slots
	r.Op, r.Key, r.Remote = verbs.OpWriteImmediate, g.key, g.address+uint64(at)*uint64(g.slotBytes)
	r.Immediate = at<<lengthBits | uint32(n)
}

// placeOf finds the bytes of the next message slot in the own ring.
func (c *connection) placeOf(immediate, number uint32) ([]byte, error) {
	at, n := immediate>>lengthBits, immediate&(1<<lengthBits-1)
	switch {
	case c.ring == nil:
		return nil, errs.Protocol("immediate", 0, "%#x, and there is no ring", immediate)
	case at != (number-1)%uint32(c.rings):
		return nil, errs.Protocol("immediate", 0, "place %d of the ring (want %d)", at, (number-1)%uint32(c.rings))
	case n > uint32(c.slotBytes):
		return nil, errs.Protocol("immediate", 0, "%d bytes (want at most %d)", n, c.slotBytes)
	}
	return c.ringSlot(int(at))[:n], nil
}
