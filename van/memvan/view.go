package memvan

import (
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/van"
)

// viewer is an endpoint of a van with views.
type viewer struct{ granter }

var _ van.Viewer = viewer{}

// Map implements van.Viewer: a view is the peer's memory itself. Budget: no allocation, one lock.
func (g viewer) Map(t van.Target, n int64, rights van.Rights) (van.View, error) {
	e := g.endpoint
	e.conn.mu.Lock()
	defer e.conn.unlock()
	switch {
	case e.closed:
		return van.View{}, stepvan.ErrClosed
	case e.conn.over:
		return van.View{}, stepvan.ErrPeerLost
	case n < 1:
		return van.View{}, errs.Invalid("a view of %d bytes", n)
	}
	r, err := e.peer.granted.findGrant(t, n, rights)
	if err != nil {
		return van.View{}, err
	}
	r.views++
	e.peer.granted.viewed++
	return van.View{Bytes: r.mem[t.Offset : t.Offset+n : t.Offset+n], Holder: r, Ref: uint64(t.Grant)}, nil
}

// ReleaseView implements van.ViewHolder.
func (r *grant) ReleaseView(v van.View) {
	e := r.owner
	e.conn.mu.Lock()
	defer e.conn.unlock()
	r.views--
	e.granted.viewed--
	e.granted.retire(van.GrantID(v.Ref), r)
	if e.granted.viewed == 0 && e.conn.over {
		e.ready() // EventDetached is due
	}
}

// OwnerEnded implements van.ViewHolder.
func (r *grant) OwnerEnded(van.View) bool {
	c := r.owner.conn
	c.mu.Lock()
	defer c.unlock()
	return c.over
}

// findGrant returns the grant of e that gives rights over n bytes from t on.
func (g *grants) findGrant(t van.Target, n int64, rights van.Rights) (*grant, error) {
	r := g.byID[t.Grant]
	switch {
	case r == nil || r.withdrawn || r.generation != t.Generation:
		return nil, fmt.Errorf("grant %#x of generation %d: %w", t.Grant, t.Generation, stepvan.ErrStale)
	case rights == 0 || rights&^r.rights != 0:
		return nil, errs.Invalid("grant %#x does not give rights %#x", t.Grant, rights)
	case t.Offset < 0 || t.Offset > int64(len(r.mem)) || n > int64(len(r.mem))-t.Offset:
		return nil, errs.Invalid("[%d,+%d) is outside grant %#x of %d bytes", t.Offset, n, t.Grant, len(r.mem))
	}
	return r, nil
}
