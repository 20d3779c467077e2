package link

import (
	"errors"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

// Granted memory as the services above see it, who see no van: package van says what each is.
type (
	Grant   = van.Grant
	GrantID = van.GrantID
	Rights  = van.Rights
	Target  = van.Target
	View    = van.View
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

// OneSided reports whether memory can be granted to the peer of this session, and the peer's memory be mapped.
func (s *Session) OneSided() bool { return s.granter != nil }

// InMessage is the payload up to which a whole message is received in one go, without asking where it belongs.
func (s *Session) InMessage() int64 { return s.caps.InMessage }

// Grant lets the peer reach mem, until Withdraw has called back or Detacher.Detached has come.
// Whatever is sent afterwards may name the grant. Errors: stepvan.ErrNotSupported when the van cannot share this
// memory, or any; errs.ErrNoGrant, which is one of these, when there is no room for another one, which there may be when
// Returned has changed or files of this process have gone; stepvan.ErrWouldBlock when its queue is full; why the session is over, when
// it is. Any goroutine.
func (s *Session) Grant(mem []byte, generation uint32, rights van.Rights) (van.Grant, error) {
	if s.granter == nil {
		return van.Grant{}, stepvan.ErrNotSupported
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != stateOpen {
		return van.Grant{}, s.refusal()
	}
	return s.granter.Grant(mem, generation, rights)
}

// Returned counts the grants of this session that have come back: while it stays the same nothing is
// gained by asking again for one that there was no room for. Any goroutine; an atomic load.
func (s *Session) Returned() uint64 { return s.returned.Load() }

// Map returns n bytes of the peer's memory from t on, to be released in the end. Errors and
// lifetime as of van.Granter; stepvan.ErrNotSupported over vans that are not one-sided. It does not allocate. Any goroutine.
func (s *Session) Map(t van.Target, n int64, rights van.Rights) (van.View, error) {
	if s.granter == nil {
		return van.View{}, stepvan.ErrNotSupported
	}
	return s.granter.Map(t, n, rights)
}

// withdrawal is a grant on its way back.
type withdrawal struct {
	grant van.GrantID
	op    van.OpID // of the van's operation; 0 while it is not begun
	done  func()
}

// opWithdraw tells the completions of withdrawals from those of frames.
const opWithdraw van.OpID = 1 << 63

// Withdraw ends a grant of this session. done is called once, without locks, when the
// peer cannot reach the memory any more: when it has let go, or when the session is detached. Then,
// at the earliest, the memory may be used for something else. It is called by the driver, or before
// Withdraw returns; never when the node is closed before the peer has let go. Any goroutine.
func (s *Session) Withdraw(g van.GrantID, done func()) {
	s.mu.Lock()
	over := s.detached || s.granter == nil
	if !over {
		s.withdrawn = append(s.withdrawn, withdrawal{grant: g, done: done})
		s.withdraw()
	}
	s.mu.Unlock()
	if over {
		done()
	}
}

// withdraw starts what could not be started before. mu is held.
func (s *Session) withdraw() {
	if s.state == stateLost {
		return // all come back when the session is detached
	}
	for i := range s.withdrawn {
		w := &s.withdrawn[i]
		if w.op != 0 {
			continue
		}
		op := opWithdraw | van.OpID(s.withdrawals+1)
		if errors.Is(s.granter.Withdraw(w.grant, op), stepvan.ErrWouldBlock) {
			return // a completion is to come
		}
		s.withdrawals++
		w.op = op
	}
}

// onWithdrawn hears that the peer has let go of a grant. Driver only.
func (s *Session) onWithdrawn(op van.OpID, err error) {
	if err != nil {
		return // of the end of the connection, which says nothing of the memory
	}
	s.mu.Lock()
	var done func()
	for i, w := range s.withdrawn {
		if w.op == op {
			s.withdrawn = append(s.withdrawn[:i], s.withdrawn[i+1:]...)
			done = w.done
			s.returned.Add(1)
			break
		}
	}
	s.withdraw()
	if s.pending > 0 {
		s.pump()
	}
	s.mu.Unlock()
	if done != nil {
		done()
	}
}

// detach hears that the peer can reach nothing any more. Driver only, after lose.
func (s *Session) detach() {
	s.mu.Lock()
	again := s.detached
	s.detached = true
	list := s.withdrawn
	s.withdrawn = nil
	s.mu.Unlock()
	if again {
		return
	}
	for _, w := range list {
		w.done()
	}
	if s.granter != nil && s.heirs > 0 {
		defer s.node.detached()
	}
	for _, h := range s.node.handlers {
		if h != nil && s.heirs > 0 {
			s.heirs--
			if d, ok := h.(Detacher); ok {
				d.Detached(s)
			}
		}
	}
}
