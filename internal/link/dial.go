package link

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/van"
)

// attemptTime is how long dialling an address may take that has another one behind it.
const attemptTime = 5 * time.Second

// PassedOver is an address of a peer that was not taken, and why.
type PassedOver struct {
	Address string // as the peer announced it: "shm://host/name"
	Err     error
}

// UnreachableError says why no address of a peer could be taken.
type UnreachableError struct{ Passed []PassedOver }

// Error reads "shm: other machine; tcp: connection refused"; of one address only its reason.
func (e *UnreachableError) Error() string {
	if len(e.Passed) == 1 {
		return e.Passed[0].Err.Error()
	}
	parts := make([]string, len(e.Passed))
	for i, p := range e.Passed {
		parts[i] = Scheme(p.Address) + ": " + p.Err.Error()
	}
	return strings.Join(parts, "; ")
}

// Unwrap returns the reasons.
func (e *UnreachableError) Unwrap() []error {
	all := make([]error, len(e.Passed))
	for i, p := range e.Passed {
		all[i] = p.Err
	}
	return all
}

// Dial opens a session with the peer that announced addrs, in the peer's order of preference. It takes the first
// address whose van this transport has, for which the van sees a way ([van.Prober]), and that answers. An address with
// another one behind it gets one attempt, of a few seconds at most. Dial tries the last one until ctx ends, while
// nobody listens there. [Session.PassedOver] lists the addresses that were not taken. When none is left the error is an
// *UnreachableError.
//
// Once connected, Dial tries no further address: a refusal by the peer is stepvan.ErrRemote with the peer's reason;
// different versions are a *wire.VersionError.
func (t *Transport) Dial(ctx context.Context, addrs []string) (*Session, error) {
	return t.dialer.dial(ctx, addrs)
}

// dialer opens sessions.
type dialer struct {
	transport *Transport
	attempt   time.Duration // how long dialling an address may take that is not the last
}

func (d *dialer) dial(ctx context.Context, addrs []string) (*Session, error) {
	var passed []PassedOver
	all, last := d.candidates(addrs)
	for i, c := range all {
		if c.err == nil {
			ep, err := c.dial(ctx, d.attempt, i == last)
			if err == nil {
				return d.openSession(ctx, c, ep, passed)
			}
			if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
				return nil, err
			}
			c.err = err
		}
		passed = append(passed, PassedOver{c.address, c.err})
	}
	if len(passed) == 0 {
		return nil, errs.Invalid("no address to dial")
	}
	return nil, &UnreachableError{passed}
}

// candidate is an address to dial.
type candidate struct {
	van     *polledVan
	address string // as announced
	local   string // in the van's notation
	err     error  // why it need not be tried
}

// candidates finds the vans of addresses, and the last address that may be within reach; -1: none.
func (d *dialer) candidates(addrs []string) (all []candidate, last int) {
	last = -1
	for i, a := range addrs {
		c := candidate{address: a}
		if c.van, c.local, c.err = d.transport.vans.resolve(a); c.err == nil {
			c.err = c.van.probe(c.local)
		}
		if c.err == nil {
			last = i
		}
		all = append(all, c)
	}
	return all, last
}

func (v *polledVan) probe(local string) error {
	if p, ok := v.van.(van.Prober); ok {
		return p.Probe(local)
	}
	return nil
}

// dial connects, within the time that an attempt may take. The last candidate may take as long as ctx allows.
func (c *candidate) dial(ctx context.Context, attempt time.Duration, last bool) (van.Endpoint, error) {
	if last {
		return c.van.van.Dial(ctx, c.local)
	}
	limited, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	ep, err := c.van.van.Dial(limited, c.local)
	if err != nil && ctx.Err() == nil && limited.Err() != nil {
		return nil, fmt.Errorf("no connection within %v: %w", attempt, err)
	}
	return ep, err
}

// openSession makes a session of a connection.
func (d *dialer) openSession(ctx context.Context, c candidate, ep van.Endpoint, passed []PassedOver) (*Session, error) {
	t := d.transport
	s := t.newSession(c.van, ep, true)
	s.address, s.passed = c.address, passed
	if err := t.sessions.attach(ep, s); err != nil {
		return nil, d.abandon(s, s.lossCause(err))
	}
	// When the connection has ended, the driver is about to lose the session, and knows the cause.
	if err := s.opening.hello(); err != nil && !errors.Is(err, stepvan.ErrPeerLost) && !errors.Is(err, stepvan.ErrClosed) {
		return nil, d.abandon(s, err)
	}
	if err := t.engine.Wait(ctx, &s.ready); err != nil {
		return nil, d.abandon(s, err)
	}
	if err := s.Err(); err != nil {
		return nil, err
	}
	return s, nil
}

// abandon ends a session whose handshake has not ended, and names the peer in the error.
func (d *dialer) abandon(s *Session, cause error) error {
	d.transport.endLater(s, cause)
	s.mu.Lock()
	if s.err != nil {
		cause = s.err
	}
	s.mu.Unlock()
	var op *stepvan.OpError
	if errors.As(cause, &op) {
		return cause
	}
	return &stepvan.OpError{Op: "connect", Van: s.caps.Name, Peer: s.ep.Peer(), Err: cause}
}

// Dialled is the address at which this side reached the peer; "" when the peer dialled.
func (s *Session) Dialled() string { return s.address }

// PassedOver lists the preferred addresses of the peer that were not taken. It is shared: read only.
func (s *Session) PassedOver() []PassedOver { return s.passed }
