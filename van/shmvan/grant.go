package shmvan

import (
	crand "crypto/rand"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/van"
)

// granter is an endpoint of a one-sided van.
type granter struct{ *endpoint }

var (
	_ van.Granter = granter{}
	_ van.Viewer  = granter{}
)

const allRights = van.RightWrite | van.RightRead

// Grant implements van.Granter. The memory must lie in the files of Options.Files. An endpoint has at most
// Options.Grants grants at once. stepvan.ErrWouldBlock says that the peer has not read yet which files this side gave
// it before. Nothing tells when it has, so the caller asks again when it has use for the grant.
func (g granter) Grant(mem []byte, generation uint32, rights van.Rights) (van.Grant, error) {
	e := g.endpoint
	if rights == 0 || rights&^allRights != 0 {
		return van.Grant{}, errs.Invalid("rights %#x: give RightWrite, RightRead or both", rights)
	}
	e.conn.mu.Lock()
	defer e.conn.mu.Unlock()
	if err := e.conn.usable(); err != nil {
		return van.Grant{}, err
	}
	s, err := e.sender.locate(mem)
	if err != nil {
		return van.Grant{}, err
	}
	return e.grants.add(s, generation, rights)
}

// Withdraw implements van.Granter. It completes at once when the peer uses nothing, and needs nothing of it for that.
func (g granter) Withdraw(id van.GrantID, op van.OpID) error {
	e := g.endpoint
	e.conn.mu.Lock()
	err := e.grants.withdraw(id, op)
	if err == nil {
		e.sender.updateDue()
	}
	e.conn.mu.Unlock()
	if err == nil {
		e.conn.van.wakePoller()
	}
	return err
}

// Map implements van.Viewer. Budget for a grant that was mapped before: no allocation, no lock.
func (g granter) Map(t van.Target, n int64, rights van.Rights) (van.View, error) {
	e := g.endpoint
	if n < 1 {
		return van.View{}, errs.Invalid("a view of %d bytes", n)
	}
	e.memory.views.Add(1) // keeps the files of the connection mapped, unless it has ended
	err := e.conn.usable()
	if err == nil {
		var p *peerGrant
		if p, err = e.memory.use(t, n, rights); err == nil {
			return van.View{Bytes: p.mem[t.Offset : t.Offset+n : t.Offset+n], Holder: p}, nil
		}
	}
	e.endView()
	return van.View{}, err
}

// grants is the memory that the peer may reach. Guarded by connection.mu.
type grants struct {
	conn      *connection
	table     table        // of this side
	peerTable table        // counts the uses by the peer
	used      int          // slots that were ever in use
	free      []int        // the unused ones of these
	pending   []withdrawal // the peer uses the grant
	completed []withdrawal // they are complete, or have failed
}

// withdrawal waits for the peer, and then for Poll.
type withdrawal struct {
	slot int
	op   van.OpID
	err  error
}

func (g *grants) waiting() bool { return len(g.pending) > 0 || len(g.completed) > 0 }

// slot returns an unused slot, false when all are in use.
func (g *grants) slot() (slot int, ok bool) {
	if k := len(g.free); k > 0 {
		slot, g.free = g.free[k-1], g.free[:k-1]
		return slot, true
	}
	if g.used == min(g.table.slots, g.peerTable.slots) {
		return 0, false
	}
	g.used++
	return g.used - 1, true
}

func (g *grants) add(s segment, generation uint32, rights van.Rights) (van.Grant, error) {
	slot, ok := g.slot()
	if !ok {
		return van.Grant{}, fmt.Errorf("%w: %d are out", errs.ErrNoGrant, g.used)
	}
	id := newGrantID(slot)
	g.table.word(slot, lineFile).Store(s.file)
	g.table.word(slot, lineOffset).Store(s.at)
	g.table.word(slot, lineLength).Store(s.n)
	g.table.word(slot, lineRights).Store(uint64(generation) | uint64(rights)<<32)
	g.conn.own.Edge().Publish()
	g.table.id(slot).Store(uint64(id))
	return van.Grant{ID: id, Generation: generation, Rights: rights, Length: int64(s.n)}, nil
}

// newGrantID names a slot. A peer cannot guess an id, and no id comes again.
func newGrantID(slot int) van.GrantID {
	for {
		var b [8]byte
		_, _ = crand.Read(b[:]) // never fails
		if id := binary.LittleEndian.Uint64(b[:]) &^ slotMask; id != 0 {
			return van.GrantID(id | uint64(slot))
		}
	}
}

func (g *grants) withdraw(id van.GrantID, op van.OpID) error {
	if err := g.conn.usable(); err != nil {
		return err
	}
	slot := int(id & slotMask)
	if id == 0 || slot >= g.used || g.table.id(slot).Load() != uint64(id) {
		return fmt.Errorf("grant %#x is withdrawn already or another endpoint's: %w", id, stepvan.ErrStale)
	}
	g.table.id(slot).Store(0)
	g.pending = append(g.pending, withdrawal{slot: slot, op: op})
	g.settle()
	return nil
}

// settle finds out which withdrawals are complete. The files are mapped.
func (g *grants) settle() {
	rest := g.pending[:0]
	for _, w := range g.pending {
		if g.peerTable.count(w.slot).Load() > 0 {
			rest = append(rest, w)
			continue
		}
		g.conn.own.Edge().Consume()
		g.free = append(g.free, w.slot)
		g.completed = append(g.completed, w)
	}
	g.pending = rest
}

// report reports the withdrawals that are complete. Poller only.
func (g *grants) report(out *sink) {
	for len(g.completed) > 0 && !out.full() {
		out.emit(van.Event{Kind: van.EventCompletion, Endpoint: g.conn.public, Op: g.completed[0].op, Err: g.completed[0].err})
		g.completed = slices.Delete(g.completed, 0, 1)
	}
}

// fail reports the withdrawals that the end of the connection has left open. false: out is full.
// Poller only, without mu.
func (g *grants) fail(out *sink) bool {
	g.conn.mu.Lock()
	defer g.conn.mu.Unlock()
	for _, w := range g.pending {
		w.err = g.conn.endedError("withdraw")
		g.completed = append(g.completed, w)
	}
	g.pending = nil
	g.report(out)
	return !g.waiting()
}
