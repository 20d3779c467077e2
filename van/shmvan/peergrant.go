package shmvan

import (
	"fmt"
	"sync/atomic"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/van"
)

// peerGrant is one grant of the peer, as this side has checked it. It is a van.ViewHolder. It does not change.
type peerGrant struct {
	endpoint   *endpoint
	slot       int
	id         van.GrantID
	uses       *atomic.Uint64 // own word in the own file: the views and writes of this moment
	current    *atomic.Uint64 // the peer's word: the id that the line has
	file       *peerFile      // held
	mem        []byte
	generation uint32
	rights     van.Rights
}

// ReleaseView implements van.ViewHolder.
func (g *peerGrant) ReleaseView(van.View) {
	g.release()
	g.endpoint.endView()
}

// OwnerEnded implements van.ViewHolder. The view keeps the files mapped.
func (g *peerGrant) OwnerEnded(van.View) bool { return g.endpoint.conn.peerEnded() }

// release ends a use. The files must stay mapped.
func (g *peerGrant) release() { g.endpoint.memory.endUse(g.uses, g.current, g.id) }

// check holds what the program asks for against the grant.
func (g *peerGrant) check(t van.Target, n int64, rights van.Rights) error {
	switch {
	case g.generation != t.Generation:
		return staleGrant(t)
	case rights == 0 || rights&^g.rights != 0:
		return errs.Invalid("grant %#x does not give rights %#x", t.Grant, rights)
	case t.Offset < 0 || t.Offset > int64(len(g.mem)) || n > int64(len(g.mem))-t.Offset:
		return errs.Invalid("[%d,+%d) is outside grant %#x of %d bytes", t.Offset, n, t.Grant, len(g.mem))
	}
	return nil
}

func staleGrant(t van.Target) error {
	return fmt.Errorf("grant %#x of generation %d: %w", t.Grant, t.Generation, stepvan.ErrStale)
}

// use finds the grant that gives rights over n bytes from t on, and counts a use of it. The files must stay mapped.
func (m *peerMemory) use(t van.Target, n int64, rights van.Rights) (*peerGrant, error) {
	slot := int(t.Grant & slotMask)
	if slot >= len(m.grants) || t.Grant == 0 {
		return nil, staleGrant(t)
	}
	uses := m.table.count(slot)
	uses.Add(1)
	g, err := m.lookup(slot, t)
	if err == nil {
		err = g.check(t, n, rights)
	}
	if err != nil {
		m.endUse(uses, m.peerTable.id(slot), t.Grant)
		return nil, err
	}
	return g, nil
}

// lookup returns the grant of a slot whose use is counted.
func (m *peerMemory) lookup(slot int, t van.Target) (*peerGrant, error) {
	if m.peerTable.id(slot).Load() != uint64(t.Grant) {
		return nil, staleGrant(t)
	}
	if g := m.grants[slot].Load(); g != nil && g.id == t.Grant {
		return g, nil
	}
	return m.readTable(slot, t)
}

// endUse ends a use, and wakes the peer when it may wait for that. If the grant was replaced meanwhile, the last use
// releases its file, because the poller may sleep. m.mu is not held.
func (m *peerMemory) endUse(uses, current *atomic.Uint64, id van.GrantID) {
	m.edge.Publish()
	if uses.Add(^uint64(0)) > 0 {
		return
	}
	if current.Load() != uint64(id) {
		m.conn.wakeIfAsleep()
	}
	if m.hasUnused.Load() {
		m.mu.Lock()
		m.dropUnused()
		m.mu.Unlock()
	}
}

// readTable reads the peer's table, once for each grant. The use of the slot is counted, so an honest peer does not
// change the line.
func (m *peerMemory) readTable(slot int, t van.Target) (*peerGrant, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if g := m.grants[slot].Load(); g != nil && g.id == t.Grant {
		return g, nil // another goroutine was here first
	}
	if len(m.unused) > maxSlots {
		return nil, fmt.Errorf("the peer changes its grants faster than they can be followed: %w", stepvan.ErrNotSupported)
	}
	line := func(at int) uint64 { return m.peerTable.word(slot, at).Load() }
	file, offset, length, rights := line(lineFile), line(lineOffset), line(lineLength), line(lineRights)
	if m.peerTable.id(slot).Load() != uint64(t.Grant) {
		return nil, staleGrant(t)
	}
	m.edge.Consume()
	g := &peerGrant{
		endpoint: m.conn.endpoint, slot: slot, id: t.Grant, uses: m.table.count(slot), current: m.peerTable.id(slot),
		generation: uint32(rights), rights: van.Rights(rights >> 32),
	}
	f, err := m.fileLocked(file)
	if err == nil {
		g.mem, err = f.slice(offset, length)
	}
	if err != nil {
		m.conn.reportFault(err)
		return nil, fmt.Errorf("grant %#x cannot be mapped: %w: %w", t.Grant, stepvan.ErrNotSupported, err)
	}
	g.file = f
	f.hold()
	if old := m.grants[slot].Swap(g); old != nil {
		m.unused = append(m.unused, old)
		m.hasUnused.Store(true)
	}
	return g, nil
}

// dropUnused releases the files of grants that were replaced, unless a use of the slot is counted. m.mu is held.
func (m *peerMemory) dropUnused() {
	m.hasUnused.Store(true) // before the counts are read: a use that still counts here sees this at its end
	rest := m.unused[:0]
	for _, g := range m.unused {
		if m.table.count(g.slot).Load() > 0 {
			rest = append(rest, g)
			continue
		}
		g.file.drop()
	}
	clear(m.unused[len(rest):])
	m.unused = rest
	m.hasUnused.Store(len(rest) > 0)
}

// dropGrants releases all grants in a file, or all grants. m.mu is held.
func (m *peerMemory) dropGrants(f *peerFile) {
	for i := range m.grants {
		if g := m.grants[i].Load(); g != nil && (f == nil || g.file == f) {
			m.grants[i].Store(nil)
			m.unused = append(m.unused, g)
		}
	}
	m.dropUnused()
}
