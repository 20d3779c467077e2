package memvan

import (
	crand "crypto/rand"
	"encoding/binary"
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/van"
)

// grant is memory of an endpoint that its peer may reach. Guarded by conn.mu.
type grant struct {
	owner      *endpoint
	mem        []byte
	generation uint32
	rights     van.Rights
	writers    int // sends of the peer that are writing
	views      int // of the peer, not released
	withdrawn  bool
	op         van.OpID // of the withdrawal
}

// grants is what an endpoint lets its peer reach. Guarded by conn.mu.
type grants struct {
	e        *endpoint
	byID     map[van.GrantID]*grant
	viewed   int  // views of the peer, not released
	detached bool // EventDetached was reported
}

// granter is an endpoint of a one-sided van.
type granter struct{ *endpoint }

var _ van.Granter = granter{}

// Grant implements van.Granter. It may be called concurrently with everything.
func (g granter) Grant(mem []byte, generation uint32, rights van.Rights) (van.Grant, error) {
	if rights == 0 || rights&^(van.RightWrite|van.RightRead) != 0 {
		return van.Grant{}, errs.Invalid("rights %#x: give RightWrite, RightRead or both", rights)
	}
	if len(mem) == 0 {
		return van.Grant{}, errs.Invalid("a grant of no memory")
	}
	e := g.endpoint
	if err := e.van.opt.Device.check(mem); err != nil {
		return van.Grant{}, err
	}
	id := newGrantID()
	e.conn.mu.Lock()
	defer e.conn.unlock()
	switch {
	case e.closed:
		return van.Grant{}, stepvan.ErrClosed
	case e.conn.over:
		return van.Grant{}, stepvan.ErrPeerLost
	case e.van.opt.Grants > 0 && len(e.granted.byID) >= e.van.opt.Grants:
		return van.Grant{}, fmt.Errorf("%w: %d are out", errs.ErrNoGrant, len(e.granted.byID))
	}
	if e.granted.byID == nil {
		e.granted.byID = map[van.GrantID]*grant{}
	}
	e.granted.byID[id] = &grant{owner: e, mem: e.van.opt.Device.bytes(mem), generation: generation, rights: rights}
	return van.Grant{ID: id, Generation: generation, Rights: rights, Length: int64(len(mem))}, nil
}

// Withdraw implements van.Granter. It may be called concurrently with everything.
func (g granter) Withdraw(id van.GrantID, op van.OpID) error {
	e := g.endpoint
	e.conn.mu.Lock()
	defer e.conn.unlock()
	r := e.granted.byID[id]
	if r == nil || r.withdrawn {
		return fmt.Errorf("grant %#x is withdrawn already or another endpoint's: %w", id, stepvan.ErrStale)
	}
	if err := e.canSend(); err != nil {
		return err
	}
	e.pending++
	r.withdrawn, r.op = true, op
	e.granted.retire(id, r)
	return nil
}

// retire completes the withdrawal of r when nobody writes to it or views it any more.
func (g *grants) retire(id van.GrantID, r *grant) {
	if r.withdrawn && r.writers == 0 && r.views == 0 && !g.e.conn.over {
		delete(g.byID, id)
		g.e.complete(r.op, nil)
	}
}

// revoke ends all grants with the connection. Nobody writes at that moment; views may be out.
func (g *grants) revoke() {
	for _, r := range g.byID {
		if r.withdrawn {
			g.e.complete(r.op, g.e.ended())
		}
	}
	g.byID = nil
}

// sendInto writes the payload of m into the peer's memory and queues the head behind it.
func (e *endpoint) sendInto(m *van.Message, size int64) error {
	c := e.conn
	c.life.RLock()
	c.mu.Lock()
	err := e.canSend()
	if err == nil {
		err = e.peer.granted.admit(m)
	}
	if err == nil {
		e.pending++
		e.write(m, size)
	}
	w := c.takeWakes()
	c.mu.Unlock()
	c.life.RUnlock()
	c.wakeVans(w)
	return err
}

// write is called and left with conn.mu held; the lock is free during the copy.
func (e *endpoint) write(m *van.Message, size int64) {
	for _, t := range m.Target {
		e.peer.granted.byID[t.Grant].writers++ // keeps it in the map
	}
	for i, t := range m.Target {
		to := e.peer.granted.byID[t.Grant].mem[t.Offset:]
		e.conn.mu.Unlock()
		copy(to, m.Payload[i])
		e.conn.mu.Lock()
	}
	for _, t := range m.Target {
		r := e.peer.granted.byID[t.Grant]
		r.writers--
		e.peer.granted.retire(t.Grant, r)
	}
	e.transmit(m, size, true)
}

// admit checks every target of a message to e before a byte is written.
func (g *grants) admit(m *van.Message) error {
	for i, t := range m.Target {
		if g.e.peer.van.opt.Offload && t.IsZero() {
			continue
		}
		if _, err := g.findGrant(t, int64(len(m.Payload[i])), van.RightWrite); err != nil {
			return err
		}
	}
	return nil
}

// newGrantID makes an id that a peer cannot guess.
func newGrantID() van.GrantID {
	var b [8]byte
	_, _ = crand.Read(b[:]) // never fails
	return van.GrantID(binary.LittleEndian.Uint64(b[:]))
}
