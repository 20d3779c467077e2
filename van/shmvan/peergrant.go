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
type peerGrant struct {
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
	e.views.Add(1) // keeps the files of the connection mapped, unless it has ended
	err := e.usable()
	if err == nil {
		var c *peerGrant
		if c, err = e.peerGrant(t, n, rights); err == nil {
			return van.View{Bytes: c.mem[t.Offset : t.Offset+n : t.Offset+n], Holder: c}, nil
		}
	}
	e.endView()
	return van.View{}, err
}

// ReleaseView implements van.ViewHolder.
func (c *peerGrant) ReleaseView(van.View) {
	c.release()
	c.e.endView()
}

// unview ends what views began. Any goroutine.
func (e *endpoint) endView() {
	if e.views.Add(-1) > 0 || e.state.Load() == stateOpen {
		return
	}
	if e.v.retired.Load() {
		e.closeWithVan()
		return
	}
	e.v.wakePoller() // the poller lets go
}

// claim finds the grant that gives rights over n bytes from t on, and counts a use of it. The files must stay mapped.
func (e *endpoint) peerGrant(t van.Target, n int64, rights van.Rights) (*peerGrant, error) {
	slot := int(t.Grant & slotMask)
	if slot >= len(e.claims) || t.Grant == 0 {
		return nil, staleGrant(t)
	}
	uses := e.table.count(slot)
	uses.Add(1)
	c, err := e.lookup(slot, t)
	if err == nil {
		err = c.gives(t, n, rights)
	}
	if err != nil {
		e.endUse(uses, e.peerTable.id(slot), t.Grant)
		return nil, err
	}
	return c, nil
}

func staleGrant(t van.Target) error {
	return fmt.Errorf("grant %#x of generation %d: %w", t.Grant, t.Generation, stepvan.ErrStale)
}

// lookUp returns the claim of a slot whose use is counted.
func (e *endpoint) lookup(slot int, t van.Target) (*peerGrant, error) {
	if e.peerTable.id(slot).Load() != uint64(t.Grant) {
		return nil, staleGrant(t)
	}
	if c := e.claims[slot].Load(); c != nil && c.id == t.Grant {
		return c, nil
	}
	return e.readTable(slot, t)
}

// gives checks what is asked for against the grant.
func (c *peerGrant) gives(t van.Target, n int64, rights van.Rights) error {
	switch {
	case c.generation != t.Generation:
		return staleGrant(t)
	case rights == 0 || rights&^c.rights != 0:
		return errs.Invalid("grant %#x does not give rights %#x", t.Grant, rights)
	case t.Offset < 0 || t.Offset > int64(len(c.mem)) || n > int64(len(c.mem))-t.Offset:
		return errs.Invalid("[%d,+%d) is outside grant %#x of %d bytes", t.Offset, n, t.Grant, len(c.mem))
	}
	return nil
}

// release ends a use. The files must stay mapped.
func (c *peerGrant) release() { c.e.endUse(c.uses, c.current, c.id) }

// unclaim ends a use, and wakes the peer when it may be waiting for that. The last use of a claim that was
// replaced meanwhile lets go of its file, as the poller may sleep. filesMu is not held.
func (e *endpoint) endUse(uses, current *atomic.Uint64, id van.GrantID) {
	e.in.edge.Publish()
	if uses.Add(^uint64(0)) > 0 {
		return
	}
	if current.Load() != uint64(id) {
		e.wakeIfAsleep()
	}
	if e.replaced.Load() {
		e.filesMu.Lock()
		e.dropUnused()
		e.filesMu.Unlock()
	}
}

// learn reads the peer's table, once for each grant. The use of the slot is counted, so an honest peer does not change it.
func (e *endpoint) readTable(slot int, t van.Target) (*peerGrant, error) {
	e.filesMu.Lock()
	defer e.filesMu.Unlock()
	if c := e.claims[slot].Load(); c != nil && c.id == t.Grant {
		return c, nil // somebody else has
	}
	if len(e.unused) > maxSlots {
		return nil, fmt.Errorf("the peer changes its grants faster than they can be followed: %w", stepvan.ErrNotSupported)
	}
	line := func(at int) uint64 { return e.peerTable.word(slot, at).Load() }
	file, offset, length, rights := line(lineFile), line(lineOffset), line(lineLength), line(lineRights)
	if e.peerTable.id(slot).Load() != uint64(t.Grant) {
		return nil, staleGrant(t)
	}
	e.in.edge.Consume()
	c := &peerGrant{
		e: e, slot: slot, id: t.Grant, uses: e.table.count(slot), current: e.peerTable.id(slot),
		generation: uint32(rights), rights: van.Rights(rights >> 32),
	}
	f, err := e.fileLocked(file)
	if err == nil {
		c.mem, err = f.slice(offset, length)
	}
	if err != nil {
		e.reportFault(err)
		return nil, fmt.Errorf("grant %#x cannot be mapped: %w: %w", t.Grant, stepvan.ErrNotSupported, err)
	}
	c.file = f
	f.hold()
	if old := e.claims[slot].Swap(c); old != nil {
		e.unused = append(e.unused, old)
		e.replaced.Store(true)
	}
	return c, nil
}

// blame has the poller end the connection for what somebody else has found. Any goroutine.
func (e *endpoint) reportFault(err error) {
	var broken *stepvan.ProtocolError
	if errors.As(err, &broken) {
		e.peerFault.CompareAndSwap(nil, &err)
		e.v.wakePoller()
	}
}

// tidy lets go of claims that were replaced. Who uses such a claim has counted a use of its slot. filesMu is held.
func (e *endpoint) dropUnused() {
	e.replaced.Store(true) // before the counts are read: whoever ends a use that is seen here sees this
	rest := e.unused[:0]
	for _, c := range e.unused {
		if e.table.count(c.slot).Load() > 0 {
			rest = append(rest, c)
			continue
		}
		c.file.drop()
	}
	clear(e.unused[len(rest):])
	e.unused = rest
	e.replaced.Store(len(rest) > 0)
}

// disclaim lets go of all claims to a file, or of all. filesMu is held.
func (e *endpoint) dropGrants(f *peerFile) {
	for i := range e.claims {
		if c := e.claims[i].Load(); c != nil && (f == nil || c.file == f) {
			e.claims[i].Store(nil)
			e.unused = append(e.unused, c)
		}
	}
	e.dropUnused()
}

// sendWritten writes the payload into the peer's memory, and the record behind it. mu is held.
func (e *endpoint) sendWritten(o *operation, m *van.Message, size int64) (err error) {
	held := e.held[:0]
	for i, t := range m.Target {
		var c *peerGrant
		if c, err = e.peerGrant(t, int64(len(m.Payload[i])), van.RightWrite); err != nil {
			break
		}
		held = append(held, c)
	}
	if err == nil {
		err = e.writeTo(held, o, m, size)
	}
	for _, c := range held {
		c.release()
	}
	clear(held)
	e.held = held
	return err
}

// writeTo writes the payload, and tells the peer. There is room for the record before anything is written. mu is held.
func (e *endpoint) writeTo(held []*peerGrant, o *operation, m *van.Message, size int64) error {
	long := len(m.Head) > e.v.opt.recordHead()
	var rec []byte
	var err error
	if long {
		if rec, err = e.out.begin(align(recBody)); rec == nil { // sendLong finds the same place
			return e.full(err)
		}
	} else if rec, _, err = e.put(m, size, 0, 0); err != nil {
		return err
	}
	for i, t := range m.Target {
		bulk.Copy(held[i].mem[t.Offset:], m.Payload[i])
	}
	if long {
		return e.sendLong(o, m, size, true)
	}
	e.commit(m, o, rec, kindWritten)
	return nil
}
