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

// grants is what this side lets the peer reach. Guarded by sendSide.mu.
type grants struct {
	of          map[van.GrantID]int // slots
	begun       int                 // slots that have been used
	free        []int               // of these, unused
	withdrawing []withdrawal        // withdrawn, and used by the peer
	completed   []van.OpID          // withdrawals that are over
}

// withdrawal waits until the peer uses the grant no more.
type withdrawal struct {
	slot int
	op   van.OpID
}

func (g *grants) waiting() bool { return len(g.withdrawing) > 0 || len(g.completed) > 0 }

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
	e.tx.mu.Lock()
	defer e.tx.mu.Unlock()
	if err := e.usable(); err != nil {
		return van.Grant{}, err
	}
	s, err := e.tx.locate(mem)
	if err != nil {
		return van.Grant{}, err
	}
	slot, ok := e.tx.grants.slot(min(e.pm.table.slots, e.pm.peerTable.slots))
	if !ok {
		return van.Grant{}, fmt.Errorf("%w: %d are out", errs.ErrNoGrant, len(e.tx.grants.of))
	}
	id := newGrantID(slot)
	e.pm.table.word(slot, lineFile).Store(s.file)
	e.pm.table.word(slot, lineOffset).Store(s.at)
	e.pm.table.word(slot, lineLength).Store(s.n)
	e.pm.table.word(slot, lineRights).Store(uint64(generation) | uint64(rights)<<32)
	e.own.edge.Publish()
	e.pm.table.id(slot).Store(uint64(id))
	if e.tx.grants.of == nil {
		e.tx.grants.of = map[van.GrantID]int{}
	}
	e.tx.grants.of[id] = slot
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
	e.tx.mu.Lock()
	err := e.tx.withdraw(id, op)
	e.tx.mu.Unlock()
	if err == nil {
		e.v.wake()
	}
	return err
}

func (tx *sendSide) withdraw(id van.GrantID, op van.OpID) error {
	if err := tx.e.usable(); err != nil {
		return err
	}
	slot, ok := tx.grants.of[id]
	if !ok {
		return fmt.Errorf("grant %#x is withdrawn already or another endpoint's: %w", id, stepvan.ErrStale)
	}
	delete(tx.grants.of, id)
	tx.e.pm.table.id(slot).Store(0)
	tx.grants.withdrawing = append(tx.grants.withdrawing, withdrawal{slot, op})
	tx.finishWithdrawals()
	tx.noteDue()
	return nil
}

// finishWithdrawals finds the withdrawals that are complete. mu is held, the files are mapped.
func (tx *sendSide) finishWithdrawals() {
	g := &tx.grants
	rest := g.withdrawing[:0]
	for _, d := range g.withdrawing {
		if tx.e.pm.peerTable.count(d.slot).Load() > 0 {
			rest = append(rest, d)
			continue
		}
		tx.out.edge.Consume()
		g.free = append(g.free, d.slot)
		g.completed = append(g.completed, d.op)
	}
	g.withdrawing = rest
}

// reportWithdrawals reports the withdrawals that are complete. mu is held. Only Poll calls it.
func (tx *sendSide) reportWithdrawals(out *sink) {
	g := &tx.grants
	for len(g.completed) > 0 && !out.full() {
		out.emit(van.Event{Kind: van.EventCompletion, Endpoint: tx.e.public(), Op: g.completed[0]})
		g.completed = append(g.completed[:0], g.completed[1:]...)
	}
}

// failWithdrawals reports the withdrawals that were not complete when the connection ended. Only Poll calls it. false: out is full.
func (tx *sendSide) failWithdrawals(out *sink) bool {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	g := &tx.grants
	tx.reportWithdrawals(out)
	for len(g.withdrawing) > 0 && !out.full() {
		out.emit(van.Event{Kind: van.EventCompletion, Endpoint: tx.e.public(), Op: g.withdrawing[0].op, Err: tx.e.failure("withdraw")})
		g.withdrawing = g.withdrawing[1:]
	}
	return !g.waiting()
}
