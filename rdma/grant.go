package rdma

import (
	crand "crypto/rand"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/verbs"
	"github.com/stepvan/stepvan/van"
)

// grant is memory of this side that the peer may reach. The peer is told of it in the next slot that carries a message:
//
//	| id u64 | address u64 | length u64 | key u32 | generation u32 | rights u32 | zero u32 | further keys u32 each
//
// Where there may be several rails it has a key for each device of the van. Else it has that of the only rail.
type grant struct {
	van.Grant
	region      *region
	window      *verbs.MW // with Options.Windows
	address     uint64
	key         uint32
	announced   bool  // to the peer
	rail        *rail // over which it was
	withdrawing bool
	op          van.OpID // of the withdrawal
}

const (
	grantBytes = 40 // with one key
	keyBytes   = 4
	allRights  = van.RightWrite | van.RightRead
	// maxGrants is how many grants of an endpoint may be out.
	maxGrants = 64 << 10
)

// grants has the grants that this side has given. Guarded by endpoint.mu.
type grants struct {
	byID        map[van.GrantID]*grant
	unsent      []*grant
	withdrawals int // that the peer has not answered
}

var _ van.Granter = (*endpoint)(nil)

// Grant implements van.Granter. Memory must be registered.
func (e *endpoint) Grant(mem []byte, generation uint32, rights van.Rights) (van.Grant, error) {
	if rights == 0 || rights&^allRights != 0 {
		return van.Grant{}, errs.Invalid("grant: rights: they do not exist (got %#x): give RightWrite, RightRead or both", rights)
	}
	if len(mem) == 0 {
		return van.Grant{}, errs.Invalid("grant: memory: it is empty: give at least a byte")
	}
	r := e.v.regions.find(mem)
	if r == nil {
		return van.Grant{}, fmt.Errorf("grant: %d bytes at %#x: they are not registered: call Register first: %w", len(mem), addressOf(mem), stepvan.ErrNotSupported)
	}
	g := &grant{region: r, address: uint64(addressOf(mem)), key: uint32(r.keys[e.out.firstDevice()].RemoteKey())}
	g.Grant = van.Grant{ID: newGrantID(), Generation: generation, Rights: rights, Length: int64(len(mem))}
	var err error
	if e.v.opt.Windows {
		g.key = 0
		if g.window, err = e.rails.first().conn.device.pd.NewMW(); err != nil {
			err = fmt.Errorf("%w: %w", errs.ErrNoGrant, err)
		}
	}
	if err == nil {
		err = e.addGrant(g)
	}
	if err != nil {
		if g.window != nil {
			_ = g.window.Close()
		}
		e.v.regions.release(r)
		return van.Grant{}, err
	}
	return g.Grant, nil
}

func (e *endpoint) addGrant(g *grant) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := &e.out.grants
	switch {
	case e.state.Load()&(failed|closed) != 0:
		return e.endError("grant")
	case g.Rights&van.RightWrite != 0 && !g.region.writable:
		return fmt.Errorf("grant: %d bytes: the memory can only be read: %w", g.Length, stepvan.ErrNotSupported)
	case len(all.byID) >= maxGrants:
		return fmt.Errorf("%w: %d are out", errs.ErrNoGrant, len(all.byID))
	case all.byID == nil:
		all.byID = map[van.GrantID]*grant{}
	}
	all.byID[g.ID] = g
	all.unsent = append(all.unsent, g)
	return nil
}

// Withdraw implements van.Granter. The peer stops, and its answer follows the last write.
func (e *endpoint) Withdraw(id van.GrantID, op van.OpID) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.state.Load()&(failed|closed) != 0 {
		return e.endError("withdraw")
	}
	s := &e.out
	g := s.grants.byID[id]
	if g == nil || g.withdrawing {
		return fmt.Errorf("withdraw: grant %#x: it is withdrawn already, or not one of this connection: %w", uint64(id), stepvan.ErrStale)
	}
	if s.full() {
		return stepvan.ErrWouldBlock
	}
	g.withdrawing, g.op = true, op
	if !g.announced {
		s.grants.unsent = slices.DeleteFunc(s.grants.unsent, func(x *grant) bool { return x == g })
		s.close(g)
		s.pumpControl()
		e.note()
		return nil
	}
	s.grants.withdrawals++
	s.control.withdraw = append(s.control.withdraw, id)
	if s.pumpControl(); s.control.due() {
		e.note()
	}
	return nil
}

// full reports whether as many operations are out as may be.
func (s *sender) full() bool {
	return s.ops.outstanding()+s.grants.withdrawals >= s.ops.limit
}

// forgetGrant completes the withdrawal of a grant.
func (s *sender) forgetGrant(g *grant, err error) {
	delete(s.grants.byID, g.ID)
	if g.window != nil {
		s.e.v.undertaker.free(g.window)
	}
	s.ops.finished = append(s.ops.finished, completion{g.op, err})
	s.e.v.regions.release(g.region)
}

// failGrants ends all grants, once the peer reaches nothing any more.
func (s *sender) failGrants(err error) {
	for _, g := range s.grants.byID {
		if g.withdrawing {
			s.ops.finished = append(s.ops.finished, completion{g.op, err})
		}
		s.e.v.regions.release(g.region)
	}
	s.grants = grants{}
	s.control = control{s: s}
}

// appendGrants writes grants that the peer does not know to b, as many as fit, and returns how many.
func (s *sender) appendGrants(r *rail, b []byte) (n int) {
	g, size := &s.grants, grantSize(s.keys)
	for len(g.unsent) > 0 && len(b) >= size {
		next := g.unsent[0]
		g.unsent = g.unsent[1:]
		next.announced, next.rail = true, r
		next.encode(b[:size])
		b = b[size:]
		n++
	}
	if len(g.unsent) == 0 {
		g.unsent = nil
	}
	return n
}

func (g *grant) encode(b []byte) {
	le := binary.LittleEndian
	le.PutUint64(b, uint64(g.ID))
	le.PutUint64(b[8:], g.address)
	le.PutUint64(b[16:], uint64(g.Length))
	le.PutUint32(b[24:], g.key)
	le.PutUint32(b[28:], g.Generation)
	le.PutUint32(b[32:], uint32(g.Rights))
	le.PutUint32(b[36:], 0)
	for i, at := 1, grantBytes; at < len(b); i, at = i+1, at+keyBytes {
		le.PutUint32(b[at:], uint32(g.region.keys[i].RemoteKey()))
	}
}

// firstDevice is the one whose key comes first.
func (s *sender) firstDevice() int {
	if s.e.several() {
		return 0
	}
	return s.e.rails.first().conn.device.index
}

// grantSize is the size of a grant with so many keys.
func grantSize(keys int) int { return grantBytes + (keys-1)*keyBytes }

// moved notes that the grants of a slot are told over another rail.
func (g *grants) moved(b []byte, n, size int, to *rail) {
	for ; n > 0; n, b = n-1, b[size:] {
		if x := g.byID[van.GrantID(binary.LittleEndian.Uint64(b))]; x != nil {
			x.rail = to
		}
	}
}

// newGrantID makes an ID that a peer cannot guess.
func newGrantID() van.GrantID {
	var b [8]byte
	_, _ = crand.Read(b[:]) // never fails
	return van.GrantID(max(binary.LittleEndian.Uint64(b[:]), 1))
}
