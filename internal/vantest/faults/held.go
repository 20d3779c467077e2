package faults

import (
	"errors"
	"slices"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

// heldLimit is how many operations of an endpoint may be outstanding when one more message is held back. The queue of
// the inner van should be as long: a message that it refuses waits until somebody polls.
const heldLimit = 64

// heldMessage is a message that the inner van has not got yet.
type heldMessage struct {
	e   *endpoint
	m   van.Message
	due time.Time
}

// hold keeps m while the van stands still, and until its delay is over. held is false when the inner van may take m at
// once.
func (e *endpoint) hold(m *van.Message) (held bool, err error) {
	v := e.van
	v.net.mu.Lock()
	defer v.net.mu.Unlock()
	delayed := v.net.options.Delay+v.net.options.Jitter > 0
	switch {
	case e.end != nil:
		return false, e.end
	case !v.stalled && e.held == 0 && !delayed:
		return false, nil
	case e.pending >= heldLimit:
		return false, stepvan.ErrWouldBlock
	}
	if err := fits(m, v.Van.Caps()); err != nil {
		return false, err
	}
	h := &heldMessage{e: e, m: keep(m)}
	if delayed {
		h.due = e.schedule()
		time.AfterFunc(time.Until(h.due), v.flush)
	}
	e.held++
	e.pending++
	v.held = append(v.held, h)
	return true, nil
}

// schedule says when the inner van gets what is sent now: never before what was sent earlier. Called with net.mu held.
func (e *endpoint) schedule() time.Time {
	o := &e.van.net.options
	due := time.Now().Add(o.Delay + time.Duration(e.van.dice.Int64N(int64(o.Jitter)+1)))
	if due.After(e.lastDue) {
		e.lastDue = due
	}
	return e.lastDue
}

// fits refuses what the inner van would refuse for its size, or for its number of targets.
func fits(m *van.Message, c van.Caps) error {
	size := m.Written
	for _, s := range m.Payload {
		size += int64(len(s))
	}
	meta, segments, targets := len(m.Head)-wire.HeaderSize, len(m.Payload), len(m.Target)
	if meta > c.MaxMeta || segments > c.MaxSegments || size > c.MaxPayload || targets > 0 && targets != segments {
		return errs.Invalid("send: %d bytes in %d segments for %d targets, with %d of meta: not as Caps says", size, segments, targets, meta)
	}
	return nil
}

// keep copies m, whose outer slices belong to the caller again after Send.
func keep(m *van.Message) van.Message {
	c := *m
	c.Payload, c.Target = slices.Clone(m.Payload), slices.Clone(m.Target)
	if m.Spare != nil {
		n := 0
		for _, s := range m.Payload {
			n += copy(m.Spare[n:], s)
		}
		c.Payload, c.Spare = [][]byte{m.Spare[:n]}, nil
	}
	return c
}

// flush sends what is held back no longer, and has the owner look what has become of it.
func (v *faultyVan) flush() {
	v.net.mu.Lock()
	if !v.stalled {
		v.sendHeld()
	}
	v.net.mu.Unlock()
	v.wake()
}

// sendHeld gives the inner van what is due and fits, and all of endpoints that are over: it completes that with an
// error. Each endpoint keeps its order. Called with net.mu held.
func (v *faultyVan) sendHeld() {
	now, waits := time.Now(), map[*endpoint]bool{}
	v.held = slices.DeleteFunc(v.held, func(h *heldMessage) bool {
		e := h.e
		if waits[e] || e.end == nil && now.Before(h.due) {
			waits[e] = true
			return false
		}
		err := e.end
		if err == nil {
			err = e.pass(&h.m)
		}
		if errors.Is(err, stepvan.ErrWouldBlock) {
			waits[e] = true
			return false
		}
		e.held--
		if err != nil || h.m.Done {
			v.ready = append(v.ready, e.completion(h.m.Op, err))
		}
		return true
	})
}
