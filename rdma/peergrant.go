package rdma

import (
	"encoding/binary"
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/verbs"
	"github.com/stepvan/stepvan/van"
)

// peerGrant is memory of the peer that this side may reach.
type peerGrant struct {
	van.Grant
	address uint64
	keys    []verbs.RemoteKey // by the peer's device, where there may be several rails; else one
	gone    bool              // withdrawn
}

// peerGrants are those that the peer has told of. Guarded by endpoint.mu.
type peerGrants map[van.GrantID]*peerGrant

// take reads the grants that come with a slot, of size bytes each. The peer has withdrawn others, and was not answered
// yet: they count as well, since a peer need not take answers.
func (p *peerGrants) take(b []byte, size, unanswered int) error {
	le := binary.LittleEndian
	if *p == nil {
		*p = peerGrants{}
	}
	for ; len(b) > 0; b = b[size:] {
		g := &peerGrant{address: le.Uint64(b[8:]), keys: []verbs.RemoteKey{verbs.RemoteKey(le.Uint32(b[24:]))}}
		for at := grantBytes; at < size; at += keyBytes {
			g.keys = append(g.keys, verbs.RemoteKey(le.Uint32(b[at:])))
		}
		g.ID, g.Length, g.Generation, g.Rights = van.GrantID(le.Uint64(b)), int64(le.Uint64(b[16:])), le.Uint32(b[28:]), van.Rights(b[32])
		switch {
		case g.ID == 0 || (*p)[g.ID] != nil:
			return errs.Protocol("grant", 0, "ID %#x is taken", uint64(g.ID))
		case g.Length <= 0 || g.address+uint64(g.Length) < g.address:
			return errs.Protocol("grant", 16, "%d bytes at %#x", g.Length, g.address)
		case g.Rights == 0 || g.Rights&^allRights != 0 || le.Uint32(b[32:])>>8 != 0 || le.Uint32(b[36:]) != 0:
			return errs.Protocol("grant", 32, "rights %#x", le.Uint64(b[32:]))
		case len(*p)+unanswered >= maxGrants:
			return errs.Protocol("grant", 0, "more than %d grants", maxGrants)
		}
		(*p)[g.ID] = g
	}
	return nil
}

// find checks a target, of n bytes, and returns the grant that it is in.
func (p peerGrants) find(t van.Target, n int64) (*peerGrant, error) {
	g := p[t.Grant]
	switch {
	case g == nil || g.Generation != t.Generation:
		return nil, fmt.Errorf("send: grant %#x of generation %d: it is withdrawn, unknown or of another generation: %w", uint64(t.Grant), t.Generation, stepvan.ErrStale)
	case g.Rights&van.RightWrite == 0:
		return nil, errs.Invalid("send: grant %#x: it does not allow writing", uint64(t.Grant))
	case t.Offset < 0 || t.Offset > g.Length || n > g.Length-t.Offset:
		return nil, errs.Invalid("send: grant %#x: the target is outside (got %d bytes at %d, want at most %d bytes together)", uint64(t.Grant), n, t.Offset, g.Length)
	}
	return g, nil
}
