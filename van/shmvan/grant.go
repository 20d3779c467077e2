package shmvan

import (
	crand "crypto/rand"
	"encoding/binary"
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/van"
)

// granter is an endpoint of a one-sided van.
type granter struct{ *endpoint }

var _ van.Granter = granter{}

const allRights = van.RightWrite | van.RightRead

// grants is what this side lets the peer reach. Guarded by endpoint.mu.
type grants struct {
	of        map[van.GrantID]int // slots
	begun     int                 // slots that have been used
	free      []int               // of these, unused
	pending   []withdrawal        // withdrawn, and used by the peer
	completed []van.OpID          // withdrawals that are over
}

// departure is a withdrawal that waits for the peer.
type withdrawal struct {
	slot int
	op   van.OpID
}

func (g *grants) waiting() bool { return len(g.pending) > 0 || len(g.completed) > 0 }

// slot returns an unused one of n, false when there is none.
func (g *grants) slot(n int) (slot int, ok bool) {
	if k := len(g.free); k > 0 {
		slot, g.free = g.free[k-1], g.free[:k-1]
		return slot, true
	}
	if g.begun == n {
		return 0, false
	}
	g.begun++
	return g.begun - 1, true
}

// Grant implements van.Granter. Memory outside of the files of Options.Files cannot be granted, and no more than
// Options.Grants at once. stepvan.ErrWouldBlock says that the peer has not read yet which files it was given before:
// nothing tells when it has, so the caller asks again when it has use for the grant.
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
	s, err := e.locate(mem)
	if err != nil {
		return van.Grant{}, err
	}
	slot, ok := e.grants.slot(min(e.table.slots, e.peerTable.slots))
	if !ok {
		return van.Grant{}, fmt.Errorf("%w: %d are out", errs.ErrNoGrant, len(e.grants.of))
	}
	id := newGrantID(slot)
	e.table.word(slot, lineFile).Store(s.file)
	e.table.word(slot, lineOffset).Store(s.at)
	e.table.word(slot, lineLength).Store(s.n)
	e.table.word(slot, lineRights).Store(uint64(generation) | uint64(rights)<<32)
	e.own.edge.Publish()
	e.table.id(slot).Store(uint64(id))
	if e.grants.of == nil {
		e.grants.of = map[van.GrantID]int{}
	}
	e.grants.of[id] = slot
	return van.Grant{ID: id, Generation: generation, Rights: rights, Length: int64(s.n)}, nil
}

// newGrantID names a slot. A peer cannot guess what it was not told, and ids do not come again.
func newGrantID(slot int) van.GrantID {
	for {
		var b [8]byte
		_, _ = crand.Read(b[:]) // never fails
		if id := binary.LittleEndian.Uint64(b[:]) &^ slotMask; id != 0 {
			return van.GrantID(id | uint64(slot))
		}
	}
}

// Withdraw implements van.Granter. It completes at once when the peer uses nothing, and needs nothing of it for that.
func (g granter) Withdraw(id van.GrantID, op van.OpID) error {
	e := g.endpoint
	e.mu.Lock()
	err := e.withdraw(id, op)
	e.mu.Unlock()
	if err == nil {
		e.v.wakePoller()
	}
	return err
}

func (e *endpoint) withdraw(id van.GrantID, op van.OpID) error {
	if err := e.usable(); err != nil {
		return err
	}
	slot, ok := e.grants.of[id]
	if !ok {
		return fmt.Errorf("grant %#x is withdrawn already or another endpoint's: %w", id, stepvan.ErrStale)
	}
	delete(e.grants.of, id)
	e.table.id(slot).Store(0)
	e.grants.pending = append(e.grants.pending, withdrawal{slot, op})
	e.settle()
	e.updateDue()
	return nil
}

// settleGrants finds out which withdrawals are over. mu is held, the files are mapped.
func (e *endpoint) settle() {
	g := &e.grants
	rest := g.pending[:0]
	for _, d := range g.pending {
		if e.peerTable.count(d.slot).Load() > 0 {
			rest = append(rest, d)
			continue
		}
		e.out.edge.Consume()
		g.free = append(g.free, d.slot)
		g.completed = append(g.completed, d.op)
	}
	g.pending = rest
}

// reportGrants reports withdrawals that are over. mu is held. Poller only.
func (e *endpoint) reportGrants(out *sink) {
	g := &e.grants
	for len(g.completed) > 0 && !out.full() {
		out.emit(van.Event{Kind: van.EventCompletion, Endpoint: e.public(), Op: g.completed[0]})
		g.completed = append(g.completed[:0], g.completed[1:]...)
	}
}

// abandonGrants reports withdrawals that the end of the connection has left open. Poller only. false: out is full.
func (e *endpoint) failWithdrawals(out *sink) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	g := &e.grants
	e.reportGrants(out)
	for len(g.pending) > 0 && !out.full() {
		out.emit(van.Event{Kind: van.EventCompletion, Endpoint: e.public(), Op: g.pending[0].op, Err: e.endedError("withdraw")})
		g.pending = g.pending[1:]
	}
	return !g.waiting()
}
