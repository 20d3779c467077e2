package link

import (
	"errors"
	"fmt"
	"strings"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link/progress"
	"github.com/stepvan/stepvan/internal/registry"
	"github.com/stepvan/stepvan/internal/text"
	"github.com/stepvan/stepvan/van"
)

// vanSet are the vans of a transport. Driver only, except list, which do not change.
type vanSet struct {
	transport *Transport
	list      []polledVan
	events    [64]van.Event
	current   *van.Event // that is dispatched, or was last
	viaQuiet  bool       // the last event came over a quiet van
}

type polledVan struct {
	van   van.Van
	caps  van.Caps
	mover van.Mover // nil: the van moves messages whole
	skips skips     // driver only
}

// skips counts the passes that leave out a van whose Poll costs system calls. Their number doubles while all traffic
// goes over another van, up to some 40 us of polling.
type skips struct {
	length int // passes that follow the next Poll without events
	left   int // passes still to be left out
}

const (
	fewestSkips = 16
	mostSkips   = 1024
	// eventPasses is for how many passes without events one with an event counts.
	eventPasses = 8
)

// skip reports whether the van is left out of this pass.
func (r *skips) skip() bool {
	if r.left <= 0 {
		return false
	}
	r.left--
	return true
}

// extend has more passes leave the van out, after a Poll without events.
func (r *skips) extend() {
	r.length = min(mostSkips, max(fewestSkips, 2*r.length))
	r.left = r.length
}

// make makes the vans.
func (x *vanSet) make(makers []VanMaker) error {
	t := x.transport
	for _, m := range makers {
		v, err := m((*placer)(t), (*source)(t).wake)
		if err != nil {
			return err
		}
		if v != nil {
			mover, _ := v.(van.Mover)
			x.list = append(x.list, polledVan{van: v, caps: v.Caps(), mover: mover})
		}
	}
	return nil
}

// registrars returns the vans that need memory registered.
func (x *vanSet) registrars() (list []registry.Device) {
	for i := range x.list {
		if r, ok := x.list[i].van.(van.Registrar); ok && x.list[i].caps.Registered {
			list = append(list, r)
		}
	}
	return list
}

// poll polls the vans. When all is false it may leave out some that cost system calls.
func (x *vanSet) poll(all bool) (total int) {
	for i := range x.list {
		v := &x.list[i]
		if !all && v.skips.skip() {
			continue
		}
		k := x.pollOne(v, all)
		total += k
		x.adjustSkips(v, k)
	}
	return total
}

func (x *vanSet) pollOne(v *polledVan, all bool) int {
	k := v.van.Poll(x.events[:], all)
	for j := range x.events[:k] {
		x.current = &x.events[j]
		x.transport.dispatch(v, x.current)
		x.events[j] = van.Event{}
	}
	if k == 0 && v.mover != nil && v.mover.Moved() {
		return 1 // a large message is moving: the engine must not yield or sleep
	}
	return k
}

// adjustSkips decides how often vans that are not quiet are polled, after one Poll that found k events.
func (x *vanSet) adjustSkips(v *polledVan, k int) {
	switch {
	case v.caps.Quiet && k > 0:
		x.viaQuiet = true
		for i := range x.list {
			x.list[i].skips.left -= eventPasses * k
		}
	case v.caps.Quiet:
	case k > 0:
		x.viaQuiet = false
		v.skips = skips{}
	case x.viaQuiet:
		v.skips.extend()
	}
}

// pollRepeatedly asks all vans for what has arrived, until they have nothing, or often enough.
func (x *vanSet) pollRepeatedly(times int) (total int) {
	for range times {
		found := 0
		for i := range x.list {
			found += x.pollOne(&x.list[i], true)
		}
		if total += found; found == 0 {
			break
		}
	}
	return total
}

func (x *vanSet) arm() bool {
	for i := range x.list {
		if !x.list[i].van.Arm() {
			return false
		}
	}
	return true
}

// resolve finds the van of an address, and the address in the notation of that van.
func (x *vanSet) resolve(addr string) (v *polledVan, local string, err error) {
	scheme, rest, ok := strings.Cut(addr, "://")
	if !ok {
		return nil, "", errs.Invalid("address %q has no van: write tcp://host:port", text.Cut(addr))
	}
	name := scheme
	if scheme == "unix" {
		name, rest = "tcp", "unix:"+rest
	}
	for i := range x.list {
		if x.list[i].caps.Name == name {
			return &x.list[i], rest, nil
		}
	}
	return nil, "", errs.Invalid("address %q needs the %s van, which this node does not have", text.Cut(addr), text.Cut(name))
}

// source is the transport as its engine sees it.
type source Transport

func (x *source) wake() {
	if x.engine != nil {
		x.engine.Wake()
	}
}

// Poll implements progress.Source. Budget of a pass without events: one Poll of each quiet van. The other vans cost
// nanoseconds while traffic goes over quiet ones.
func (x *source) Poll(all bool) int {
	t := (*Transport)(x)
	total := 0
	if !t.late.queue.empty() {
		t.vans.current = nil // for the report of a panic
		t.late.run()
		total++
	}
	if !t.endings.empty() {
		x.endSessions()
		total++
	}
	if t.reminder.due.Load() {
		t.reminder.remind(t)
	}
	total += t.vans.poll(all)
	if len(t.losses.list) > 0 {
		total += t.losses.settle()
	}
	return total
}

// Flush implements progress.Source: it sends acknowledgements that no message has carried.
func (x *source) Flush(idle bool) {
	if x.acksDue.empty() {
		return
	}
	list := x.acksDue.take()
	at := now()
	for _, s := range list {
		s.acks.flush(idle, at)
	}
	x.acksDue.reuse(list)
}

// Arm implements progress.Source. Nothing waits for the next Poll when it returns true.
func (x *source) Arm() bool {
	x.late.run()
	return x.vans.arm() && x.endings.empty() && !x.reminder.due.Load() // later ones come with Engine.WakeAll
}

// FDs implements progress.Source.
func (x *source) FDs() []progress.Descriptor {
	var fds []progress.Descriptor
	for _, v := range x.vans.list {
		if fd := v.van.FD(); fd >= 0 {
			fds = append(fds, progress.Descriptor{FD: fd, Quiet: v.caps.Quiet})
		}
	}
	return fds
}

// dispatch handles one event of a van. Driver only.
func (t *Transport) dispatch(v *polledVan, e *van.Event) {
	if e.Kind == van.EventAccepted {
		t.accept(v, e.Endpoint)
		return
	}
	s, _ := e.Endpoint.User().(*Session)
	if s == nil {
		if s = t.lateSession(e); s == nil {
			return
		}
	}
	switch e.Kind {
	case van.EventMessage:
		s.onFrame(e.Delivery)
	case van.EventCompletion:
		s.onCompleted(e)
	case van.EventLost:
		t.losses.add(s, s.lossCause(e.Err))
	case van.EventDetached:
		if t.losses.noteDetached(s) {
			return
		}
		s.lose(s.wrap(stepvan.ErrClosed)) // without effect when it is lost already
		s.grants.detach()
	}
}

// lateSession returns the session that Dial has made for an event meanwhile. It is nil otherwise: then Dial
// finds the connection broken.
func (t *Transport) lateSession(e *van.Event) *Session {
	switch {
	case e.Kind == van.EventMessage:
		e.Delivery.Release()
	case e.Kind == van.EventLost && !t.sessions.keepEarlyLoss(e.Endpoint, e.Err):
		s, _ := e.Endpoint.User().(*Session)
		return s
	}
	return nil
}

// onCompleted takes a completion: of a withdrawal, or of a frame.
func (s *Session) onCompleted(e *van.Event) {
	if e.Op&opWithdraw != 0 {
		s.grants.onWithdrawn(e.Op, e.Err)
		return
	}
	var delivered, lost queue[Outbound]
	s.mu.Lock()
	s.out.onCompletion(int(e.Op), &delivered, &lost)
	if len(s.grants.withdrawn) > 0 {
		s.grants.startWithdrawals()
	}
	err := s.err
	s.mu.Unlock()
	callCompleters(delivered, nil)
	callCompleters(lost, err)
	if errors.Is(e.Err, stepvan.ErrStale) && !s.lost {
		s.fail(fmt.Errorf("a target was refused while a message was being written: %w", e.Err))
	}
}
