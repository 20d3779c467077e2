package link

import (
	"errors"
	"sync/atomic"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

// Granted memory as the services above see it, which do not import package van: van documents each type.
type (
	Grant   = van.Grant
	GrantID = van.GrantID
	Rights  = van.Rights
	Target  = van.Target
	View    = van.View
	Caps    = van.Caps

	Counters = van.Counters
)

// Rights bits.
const (
	RightWrite = van.RightWrite
	RightRead  = van.RightRead
)

// TargetOf is the memory that a descriptor names.
func TargetOf(d *wire.Descriptor) Target {
	return Target{Grant: GrantID(d.Region), Generation: d.Generation, Offset: int64(d.Offset)}
}

// OneSided reports whether memory can be granted to the peer of this session, and be written there (Outbound.Targets).
func (s *Session) OneSided() bool { return s.grants.granter != nil }

// Caps says what the van of this session can do. The caller must not change it.
func (s *Session) Caps() *van.Caps { return &s.caps }

// Grant lets the peer reach mem, until Withdraw has called back or Detacher.Detached has come. Whatever is sent
// afterwards may name the grant. Errors:
//
//   - stepvan.ErrNotSupported: the van cannot share this memory, or any memory.
//   - errs.ErrNoGrant, which wraps it: there is no room for another grant. Try again when Returned has changed, or when
//     memory files of this process have gone.
//   - stepvan.ErrWouldBlock: the queue of the van is full.
//   - that of [Session.Err] when the session is over.
//
// Any goroutine.
func (s *Session) Grant(mem []byte, generation uint32, rights van.Rights) (van.Grant, error) {
	if s.grants.granter == nil {
		return van.Grant{}, stepvan.ErrNotSupported
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != stateOpen {
		return van.Grant{}, s.refusal()
	}
	return s.grants.granter.Grant(mem, generation, rights)
}

// Returned counts the withdrawn grants of this session that the peer has given up. A caller whose grant found no room
// need not try again while the count stays the same. Any goroutine; an atomic load.
func (s *Session) Returned() uint64 { return s.grants.returned.Load() }

// Map returns n bytes of the peer's memory from t on. The caller releases the view. [van.Viewer] says which errors
// there are and how long the view lives. Without Views it is stepvan.ErrNotSupported. Map does not allocate. Any
// goroutine.
func (s *Session) Map(t van.Target, n int64, rights van.Rights) (van.View, error) {
	if s.grants.viewer == nil {
		return van.View{}, stepvan.ErrNotSupported
	}
	return s.grants.viewer.Map(t, n, rights)
}

// Withdraw ends a grant of this session. The driver calls done once, without locks, when the peer cannot reach the
// memory any more. Then the peer has given up its views, or the session is detached. Only then may the memory be used
// for something else. Withdraw itself calls done before it returns when that is so already. Nobody calls done when the
// transport is closed before the peer has given up its views. Any goroutine.
func (s *Session) Withdraw(g van.GrantID, done func()) {
	s.mu.Lock()
	over := s.grants.detached || s.grants.granter == nil
	if !over {
		s.grants.withdrawn = append(s.grants.withdrawn, withdrawal{grant: g, done: done})
		s.grants.startWithdrawals()
	}
	s.mu.Unlock()
	if over {
		done()
	}
}

// grants are the grants of a session that are being withdrawn. Session.mu guards them.
type grants struct {
	session   *Session
	granter   van.Granter  // nil over vans that are not one-sided
	viewer    van.Viewer   // nil over vans without views
	withdrawn []withdrawal // not completed
	begun     uint64       // withdrawals, ever
	returned  atomic.Uint64
	detached  bool // the peer can reach nothing any more
}

// withdrawal is a grant that is being withdrawn.
type withdrawal struct {
	grant van.GrantID
	op    van.OpID // of the van's operation; 0 while it has not begun
	done  func()
}

// opWithdraw tells the completions of withdrawals from those of frames.
const opWithdraw van.OpID = 1 << 63

// startWithdrawals starts the withdrawals that the van had no room for. Session.mu is held.
func (x *grants) startWithdrawals() {
	if x.session.state == stateLost {
		return // detach ends all of them
	}
	for i := range x.withdrawn {
		w := &x.withdrawn[i]
		if w.op != 0 {
			continue
		}
		op := opWithdraw | van.OpID(x.begun+1)
		if errors.Is(x.granter.Withdraw(w.grant, op), stepvan.ErrWouldBlock) {
			return // a completion will follow
		}
		x.begun++
		w.op = op
	}
}

// onWithdrawn takes the completion of a withdrawal: the peer has given up its views. Driver only.
func (x *grants) onWithdrawn(op van.OpID, err error) {
	if err != nil {
		return // the end of the connection, which says nothing of the memory
	}
	s := x.session
	s.mu.Lock()
	var done func()
	for i, w := range x.withdrawn {
		if w.op == op {
			x.withdrawn = append(x.withdrawn[:i], x.withdrawn[i+1:]...)
			done = w.done
			x.returned.Add(1)
			break
		}
	}
	x.startWithdrawals()
	if s.out.waiting > 0 {
		s.out.pump()
	}
	s.mu.Unlock()
	if done != nil {
		done()
	}
}

// detach ends all withdrawals, since the peer can reach nothing any more. Driver only, after lose.
func (x *grants) detach() {
	s := x.session
	s.mu.Lock()
	again := x.detached
	x.detached = true
	list := x.withdrawn
	x.withdrawn = nil
	s.mu.Unlock()
	if again {
		return
	}
	for _, w := range list {
		w.done()
	}
	if x.granter != nil && s.opening.toDetach > 0 {
		defer s.transport.sessions.detached()
	}
	for _, h := range s.transport.handlers {
		if h != nil && s.opening.toDetach > 0 {
			s.opening.toDetach--
			if d, ok := h.(Detacher); ok {
				d.Detached(s)
			}
		}
	}
}
