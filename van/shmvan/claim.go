package shmvan

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/bulk"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/van"
)

// claim is one grant of the peer, as this side has checked it. It is a van.ViewHolder. It does not change.
type claim struct {
	e          *endpoint
	slot       int
	id         van.GrantID
	uses       *atomic.Uint64 // own word in the own file: views and writes that go on
	current    *atomic.Uint64 // the peer's word: the id that the line has
	file       *peerFile      // held
	mem        []byte
	generation uint32
	rights     van.Rights
}

// Map implements van.Granter. Budget for a grant that was mapped before: no allocation, no lock.
func (g granter) Map(t van.Target, n int64, rights van.Rights) (van.View, error) {
	e := g.endpoint
	if n < 1 {
		return van.View{}, errs.Invalid("a view of %d bytes", n)
	}
	e.pm.views.Add(1) // keeps the files of the connection mapped, unless it has ended
	err := e.usable()
	if err == nil {
		var c *claim
		if c, err = e.pm.claim(t, n, rights); err == nil {
			return van.View{Bytes: c.mem[t.Offset : t.Offset+n : t.Offset+n], Holder: c}, nil
		}
	}
	e.pm.endView()
	return van.View{}, err
}

// ReleaseView implements van.ViewHolder.
func (c *claim) ReleaseView(van.View) {
	c.release()
	c.e.pm.endView()
}

// endView gives up a reference that Map or claim took. Any goroutine may call it.
func (pm *peerMemory) endView() {
	if pm.views.Add(-1) > 0 || pm.e.state.Load() == stateOpen {
		return
	}
	if pm.e.v.retired.Load() {
		pm.e.closeWithVan()
		return
	}
	pm.e.v.wake() // Poll unmaps the files
}

// claim finds the grant that gives rights over n bytes from t on, and counts a use of it. The files must stay mapped.
func (pm *peerMemory) claim(t van.Target, n int64, rights van.Rights) (*claim, error) {
	slot := int(t.Grant & slotMask)
	if slot >= len(pm.claims) || t.Grant == 0 {
		return nil, stale(t)
	}
	uses := pm.table.count(slot)
	uses.Add(1)
	c, err := pm.lookUp(slot, t)
	if err == nil {
		err = c.gives(t, n, rights)
	}
	if err != nil {
		pm.unclaim(uses, pm.peerTable.id(slot), t.Grant)
		return nil, err
	}
	return c, nil
}

func stale(t van.Target) error {
	return fmt.Errorf("grant %#x of generation %d: %w", t.Grant, t.Generation, stepvan.ErrStale)
}

// lookUp returns the claim of a slot whose use is counted.
func (pm *peerMemory) lookUp(slot int, t van.Target) (*claim, error) {
	if pm.peerTable.id(slot).Load() != uint64(t.Grant) {
		return nil, stale(t)
	}
	if c := pm.claims[slot].Load(); c != nil && c.id == t.Grant {
		return c, nil
	}
	return pm.readGrant(slot, t)
}

// gives checks what is asked for against the grant.
func (c *claim) gives(t van.Target, n int64, rights van.Rights) error {
	switch {
	case c.generation != t.Generation:
		return stale(t)
	case rights == 0 || rights&^c.rights != 0:
		return errs.Invalid("grant %#x does not give rights %#x", t.Grant, rights)
	case t.Offset < 0 || t.Offset > int64(len(c.mem)) || n > int64(len(c.mem))-t.Offset:
		return errs.Invalid("[%d,+%d) is outside grant %#x of %d bytes", t.Offset, n, t.Grant, len(c.mem))
	}
	return nil
}

// release ends a use. The files must stay mapped.
func (c *claim) release() { c.e.pm.unclaim(c.uses, c.current, c.id) }

// unclaim ends a use, and wakes the peer when it may be waiting for that. The last use of a claim that was
// replaced meanwhile lets go of its file, as the poller may sleep. pm.mu is not held.
func (pm *peerMemory) unclaim(uses, current *atomic.Uint64, id van.GrantID) {
	pm.e.rx.in.edge.Publish()
	if uses.Add(^uint64(0)) > 0 {
		return
	}
	if current.Load() != uint64(id) {
		pm.e.wakePeer()
	}
	if pm.replaced.Load() {
		pm.mu.Lock()
		pm.dropUnused()
		pm.mu.Unlock()
	}
}

// readGrant reads a line of the peer's table, once for each grant. The caller has counted a use of the slot, so an honest peer does not
// change the line.
func (pm *peerMemory) readGrant(slot int, t van.Target) (*claim, error) {
	pm.mu.Lock()
	defer pm.mu.Unlock()
	if c := pm.claims[slot].Load(); c != nil && c.id == t.Grant {
		return c, nil // somebody else has
	}
	if len(pm.unused) > mostSlots {
		return nil, fmt.Errorf("the peer changes its grants faster than they can be followed: %w", stepvan.ErrNotSupported)
	}
	line := func(at int) uint64 { return pm.peerTable.word(slot, at).Load() }
	file, offset, length, rights := line(lineFile), line(lineOffset), line(lineLength), line(lineRights)
	if pm.peerTable.id(slot).Load() != uint64(t.Grant) {
		return nil, stale(t)
	}
	pm.e.rx.in.edge.Consume()
	c := &claim{
		e: pm.e, slot: slot, id: t.Grant, uses: pm.table.count(slot), current: pm.peerTable.id(slot),
		generation: uint32(rights), rights: van.Rights(rights >> 32),
	}
	f, err := pm.fileLocked(file)
	if err == nil {
		c.mem, err = f.slice(offset, length)
	}
	if err != nil {
		pm.reportViolation(err)
		return nil, fmt.Errorf("grant %#x cannot be mapped: %w: %w", t.Grant, stepvan.ErrNotSupported, err)
	}
	c.file = f
	f.hold()
	if old := pm.claims[slot].Swap(c); old != nil {
		pm.unused = append(pm.unused, old)
		pm.replaced.Store(true)
	}
	return c, nil
}

// reportViolation has Poll end the connection for an error that another goroutine has found.
func (pm *peerMemory) reportViolation(err error) {
	var broken *stepvan.ProtocolError
	if errors.As(err, &broken) {
		pm.violation.CompareAndSwap(nil, &err)
		pm.e.v.wake()
	}
}

// dropUnused drops claims that were replaced and that nobody uses. A user of a claim has counted a use of its slot. pm.mu is held.
func (pm *peerMemory) dropUnused() {
	pm.replaced.Store(true) // before the counts are read: whoever ends a use that is seen here sees this
	rest := pm.unused[:0]
	for _, c := range pm.unused {
		if pm.table.count(c.slot).Load() > 0 {
			rest = append(rest, c)
			continue
		}
		c.file.drop()
	}
	clear(pm.unused[len(rest):])
	pm.unused = rest
	pm.replaced.Store(len(rest) > 0)
}

// dropClaims drops the claims to a file, or all claims when f is nil. pm.mu is held.
func (pm *peerMemory) dropClaims(f *peerFile) {
	for i := range pm.claims {
		if c := pm.claims[i].Load(); c != nil && (f == nil || c.file == f) {
			pm.claims[i].Store(nil)
			pm.unused = append(pm.unused, c)
		}
	}
	pm.dropUnused()
}

// sendWritten writes the payload into the peer's memory, and the record behind it. mu is held.
func (tx *sendSide) sendWritten(o *operation, m *van.Message, size int64) (err error) {
	held := tx.held[:0]
	for i, t := range m.Target {
		var c *claim
		if c, err = tx.e.pm.claim(t, int64(len(m.Payload[i])), van.RightWrite); err != nil {
			break
		}
		held = append(held, c)
	}
	if err == nil {
		err = tx.writeTo(held, o, m, size)
	}
	for _, c := range held {
		c.release()
	}
	clear(held)
	tx.held = held
	return err
}

// writeTo writes the payload, and tells the peer. There is room for the record before anything is written. mu is held.
func (tx *sendSide) writeTo(held []*claim, o *operation, m *van.Message, size int64) error {
	long := len(m.Head) > tx.e.v.opt.recordHead()
	var rec []byte
	var err error
	if long {
		if rec, err = tx.out.begin(align(recBody)); rec == nil { // sendLong finds the same place
			return tx.full(err)
		}
	} else if rec, _, err = tx.put(m, size, 0, 0); err != nil {
		return err
	}
	for i, t := range m.Target {
		bulk.Copy(held[i].mem[t.Offset:], m.Payload[i])
	}
	if long {
		return tx.sendLong(o, m, size, true)
	}
	tx.commit(m, o, rec, kindWritten)
	return nil
}
