package shmvan

import (
	crand "crypto/rand"
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/van"
)

// granter is an endpoint of a one-sided van.
type granter struct{ *endpoint }

var _ van.Granter = granter{}

// grant is memory of this side that the peer may reach. Guarded by endpoint.mu.
type grant struct {
	withdrawn bool
	op        van.OpID
}

// body of kindGrant: id, file, offset, length, generation, rights
const grantBytes = 40

const allRights = van.RightWrite | van.RightRead

// Grant implements van.Granter. Memory outside of the files of Options.Files cannot be granted.
func (g granter) Grant(mem []byte, generation uint32, rights van.Rights) (van.Grant, error) {
	e := g.endpoint
	if rights == 0 || rights&^allRights != 0 {
		return van.Grant{}, errs.Invalid("rights %#x: give RightWrite, RightRead or both", rights)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.usable(); err != nil {
		return van.Grant{}, err
	}
	if e.stream.active {
		return van.Grant{}, errs.ErrWouldBlock
	}
	s, ok := e.chart(mem)
	if !ok {
		return van.Grant{}, fmt.Errorf("the memory lies in no file that can be shared: %w", errs.ErrNotSupported)
	}
	rec, err := e.out.begin(align(recBody + grantBytes))
	if rec == nil {
		return van.Grant{}, e.full(err)
	}
	var id [8]byte
	_, _ = crand.Read(id[:]) // never fails; a peer cannot guess what it was not told
	copy(rec[recBody:], id[:])
	le := binary.LittleEndian
	le.PutUint64(rec[recBody+8:], s.file)
	le.PutUint64(rec[recBody+16:], s.at)
	le.PutUint64(rec[recBody+24:], s.n)
	le.PutUint32(rec[recBody+32:], generation)
	le.PutUint32(rec[recBody+36:], uint32(rights))
	e.out.publish(len(rec), kindGrant, 0)
	e.rouse()
	if e.grants == nil {
		e.grants = map[van.GrantID]*grant{}
	}
	n := van.GrantID(le.Uint64(id[:]))
	e.grants[n] = &grant{}
	return van.Grant{ID: n, Generation: generation, Rights: rights, Length: int64(s.n)}, nil
}

// Withdraw implements van.Granter.
func (g granter) Withdraw(id van.GrantID, op van.OpID) error {
	e := g.endpoint
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.usable(); err != nil {
		return err
	}
	r := e.grants[id]
	if r == nil || r.withdrawn {
		return fmt.Errorf("grant %#x is withdrawn already or another endpoint's: %w", id, errs.ErrStale)
	}
	r.withdrawn, r.op = true, op
	e.errand(errandOf{kindWithdraw, uint64(id)})
	return nil
}

// errands are short records that wait for room. Guarded by endpoint.mu.
type errands []errandOf

type errandOf struct {
	kind kind
	id   uint64
}

func (l errands) waiting() bool { return len(l) > 0 }

// errand sends a record that says no more than a number, or has the poller do it. mu is held.
func (e *endpoint) errand(x errandOf) {
	e.errands = append(e.errands, x)
	e.runErrands()
	e.noteDue()
	e.rouse()
}

func (e *endpoint) runErrands() {
	for len(e.errands) > 0 && !e.stream.active {
		rec, err := e.out.begin(align(recBody + 8))
		if rec == nil || err != nil {
			return
		}
		x := e.errands[0]
		e.errands = append(e.errands[:0], e.errands[1:]...)
		binary.LittleEndian.PutUint64(rec[recBody:], x.id)
		e.out.publish(len(rec), x.kind, 0)
	}
}

// withhold tells the peer to let go of a file that goes. Any goroutine.
func (e *endpoint) withhold(file uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, id := range e.offered {
		if id == file {
			e.offered = append(e.offered[:i], e.offered[i+1:]...)
			if e.usable() == nil {
				e.errand(errandOf{kindForget, file})
			}
			return
		}
	}
}

// claims are what the peer has granted to this side.
type claims struct {
	mu   sync.Mutex
	over bool
	of   map[van.GrantID]*claim
}

// claim is one grant of the peer. It is a van.ViewHolder. Guarded by claims.mu.
type claim struct {
	e          *endpoint
	id         van.GrantID
	file       *peerFile // held
	mem        []byte
	generation uint32
	rights     van.Rights
	withdrawn  bool
	uses       int // views and writes that go on
}

// control takes a record about grants and files. Poller only.
func (e *endpoint) control(out *sink, r *record) error {
	if len(r.bytes) < recBody+8 || r.kind == kindGrant && len(r.bytes) < recBody+grantBytes {
		return &errs.ProtocolError{Field: "record", Reason: "too short"}
	}
	if e.v.opt.TwoSided && r.kind != kindForget {
		return &errs.ProtocolError{Field: "record", Reason: "a grant, and this side takes none"}
	}
	id := binary.LittleEndian.Uint64(r.bytes[recBody:])
	switch r.kind {
	case kindForget:
		e.forget(id)
		return nil
	case kindWithdraw:
		return e.claims.withdraw(van.GrantID(id))
	case kindLetGo:
		return e.returned(out, van.GrantID(id))
	}
	le := binary.LittleEndian
	b := append([]byte(nil), r.bytes[recBody:recBody+grantBytes]...)
	c := &claim{
		e: e, id: van.GrantID(le.Uint64(b)), generation: le.Uint32(b[32:]), rights: van.Rights(le.Uint32(b[36:])),
	}
	f, err := e.file(le.Uint64(b[8:]))
	if err != nil {
		return err
	}
	if c.mem, err = f.slice(le.Uint64(b[16:]), le.Uint64(b[24:])); err != nil {
		return err
	}
	if len(c.mem) == 0 || !f.hold() {
		return &errs.ProtocolError{Field: "grant", Reason: "of nothing"}
	}
	c.file = f
	return e.claims.add(c)
}

// returned completes a withdrawal.
func (e *endpoint) returned(out *sink, id van.GrantID) error {
	e.mu.Lock()
	r := e.grants[id]
	if r == nil || !r.withdrawn {
		e.mu.Unlock()
		return &errs.ProtocolError{Field: "grant", Reason: "returned without having been withdrawn"}
	}
	delete(e.grants, id)
	e.mu.Unlock()
	out.emit(van.Event{Kind: van.EventCompletion, Endpoint: e.face(), Op: r.op})
	return nil
}

// abandonGrants reports withdrawals that the end of the connection has left open. Poller only.
func (e *endpoint) abandonGrants(out *sink) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for id, r := range e.grants {
		if r.withdrawn {
			if out.full() {
				return
			}
			out.emit(van.Event{Kind: van.EventCompletion, Endpoint: e.face(), Op: r.op, Err: e.fault("withdraw")})
		}
		delete(e.grants, id)
	}
}

const mostClaims = 1 << 20

func (l *claims) add(c *claim) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of[c.id] != nil || len(l.of) >= mostClaims {
		c.file.drop()
		return &errs.ProtocolError{Field: "grant", Reason: "granted twice, or one too many"}
	}
	if l.of == nil {
		l.of = map[van.GrantID]*claim{}
	}
	l.of[c.id] = c
	return nil
}

func (l *claims) withdraw(id van.GrantID) error {
	l.mu.Lock()
	c := l.of[id]
	if c == nil || c.withdrawn {
		l.mu.Unlock()
		return &errs.ProtocolError{Field: "grant", Reason: "withdrawn without having been given"}
	}
	c.withdrawn = true
	idle := l.settle(c)
	l.mu.Unlock()
	if idle {
		c.surrender()
	}
	return nil
}

// settle takes c out when nobody uses what was withdrawn. mu is held. true: surrender, without mu.
func (l *claims) settle(c *claim) bool {
	if !c.withdrawn || c.uses > 0 {
		return false
	}
	delete(l.of, c.id)
	return true
}

// surrender gives a grant back to the peer.
func (c *claim) surrender() {
	c.file.drop()
	e := c.e
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.usable() == nil {
		e.errand(errandOf{kindLetGo, uint64(c.id)})
	}
}

// clear lets go of everything at the end of the connection, but for what views hold.
func (l *claims) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	for id, c := range l.of {
		c.withdrawn = true
		if c.uses == 0 {
			c.file.drop()
			delete(l.of, id)
		}
	}
}

// use finds the grant that gives rights over n bytes from t on, and holds it. mu is held.
func (l *claims) use(t van.Target, n int64, rights van.Rights) (*claim, error) {
	c := l.of[t.Grant]
	switch {
	case c == nil || c.withdrawn || c.generation != t.Generation:
		return nil, fmt.Errorf("grant %#x of generation %d: %w", t.Grant, t.Generation, errs.ErrStale)
	case rights == 0 || rights&^c.rights != 0:
		return nil, errs.Invalid("grant %#x does not give rights %#x", t.Grant, rights)
	case t.Offset < 0 || t.Offset > int64(len(c.mem)) || n > int64(len(c.mem))-t.Offset:
		return nil, errs.Invalid("[%d,+%d) is outside grant %#x of %d bytes", t.Offset, n, t.Grant, len(c.mem))
	}
	c.uses++
	return c, nil
}

// leave ends a use. Without mu.
func (l *claims) leave(c *claim) {
	l.mu.Lock()
	c.uses--
	last := l.settle(c)
	over := l.over
	l.mu.Unlock()
	switch {
	case last && over:
		c.file.drop()
	case last:
		c.surrender()
	}
}

// Map implements van.Granter. Budget: no allocation, one lock.
func (g granter) Map(t van.Target, n int64, rights van.Rights) (van.View, error) {
	e := g.endpoint
	if n < 1 {
		return van.View{}, errs.Invalid("a view of %d bytes", n)
	}
	if err := e.usable(); err != nil {
		return van.View{}, err
	}
	e.claims.mu.Lock()
	defer e.claims.mu.Unlock()
	if e.claims.over {
		return van.View{}, errs.ErrPeerLost
	}
	c, err := e.claims.use(t, n, rights)
	if err != nil {
		return van.View{}, err
	}
	e.views.Add(1)
	return van.View{Bytes: c.mem[t.Offset : t.Offset+n : t.Offset+n], Holder: c}, nil
}

// ReleaseView implements van.ViewHolder.
func (c *claim) ReleaseView(van.View) {
	e := c.e
	e.claims.leave(c)
	if e.views.Add(-1) == 0 && e.state.Load() != stateOpen {
		e.letGo()
		e.v.stir()
	}
}

// sendWritten writes the payload into the peer's memory, and the record behind it. mu is held.
func (e *endpoint) sendWritten(o *operation, m *van.Message, size int64) error {
	e.claims.mu.Lock()
	used := 0
	var err error
	for i, t := range m.Target {
		if _, err = e.claims.use(t, int64(len(m.Payload[i])), van.RightWrite); err != nil {
			break
		}
		used++
	}
	e.claims.mu.Unlock()
	var rec []byte
	if err == nil {
		rec, _, err = e.put(m, size, 0, 0)
	}
	if err == nil {
		for i, t := range m.Target {
			copy(e.claims.at(t), m.Payload[i])
		}
		e.commit(m, o, rec, kindWritten)
	}
	for _, t := range m.Target[:used] {
		e.claims.unuse(t)
	}
	return err
}

// at is the memory of a target that is in use.
func (l *claims) at(t van.Target) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.of[t.Grant].mem[t.Offset:]
}

// unuse ends the use of a target by a send, which holds endpoint.mu: the answer to a withdrawal is left to the poller.
func (l *claims) unuse(t van.Target) {
	l.mu.Lock()
	c := l.of[t.Grant]
	c.uses--
	last := l.settle(c)
	over := l.over
	l.mu.Unlock()
	if !last {
		return
	}
	c.file.drop()
	if e := c.e; !over && e.usable() == nil {
		e.errand(errandOf{kindLetGo, uint64(c.id)})
	}
}
