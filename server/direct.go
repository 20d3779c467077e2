package server

import (
	"errors"
	"slices"

	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/registry"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/tensor"
)

// errUnreached says that answers of an accelerator must be copied to memory of the host.
var errUnreached = errors.New("no device of the van reaches the answers where they are")

// reachAccelerator makes sure that a device writes the answers that an accelerator holds, and that what their messages
// are written from stays registered. Without that the error is errUnreached. Only promised answers can be there. Under
// Server.mu.
func (c *respondCall) reachAccelerator(all *registry.Registry) error {
	if c.promise == nil {
		return nil
	}
	for k, m := range c.messages {
		if !slices.ContainsFunc(m.answers, func(a answer) bool { return a.tensor.Len() > 0 && !a.tensor.Device().IsHost() }) {
			continue
		}
		if !m.aims || !c.requests[k].reachesAccelerators() || !m.holdSources(all) {
			return errUnreached
		}
	}
	return nil
}

// holdSources keeps the memory registered that the answers are written from. It reports false where some is not.
func (m *message) holdSources(all *registry.Registry) bool {
	for i := range m.answers {
		a := &m.answers[i]
		if a.inPlace || a.along || a.tensor.Len() == 0 {
			continue
		}
		h, ok := all.Hold(a.tensor.Addresses())
		if !ok {
			return false
		}
		m.holds = append(m.holds, h)
	}
	return true
}

// letGo ends the holds.
func (m *message) letGo(all *registry.Registry) {
	for _, h := range m.holds {
		all.Release(h)
	}
	clear(m.holds)
	m.holds = m.holds[:0]
}

// reachesAccelerators reports whether the van to the worker of r has a device that may reach memory of accelerators.
func (r *requestSlot) reachesAccelerators() bool { return hasDevice(r.session) }

func hasDevice(session *link.Session) bool {
	caps := session.Caps()
	return caps.Offload && caps.Registered
}

// room returns the memory that session may write the pushes into, and whether an accelerator holds it. That is so where
// a device reaches the accelerator. Otherwise it is memory of the host, and so are the pushes that come in messages.
func (c *chunk) room(session *link.Session) (mem []byte, direct bool) {
	if m := c.buffer.mirror; m != nil && m.held.Registered() && hasDevice(session) {
		return c.onAccelerator(), true
	}
	return c.mem, false
}

// overlaps reports whether the chunks share memory, of the host or of an accelerator.
func (c *chunk) overlaps(other *chunk) bool {
	if m := other.buffer.mirror; m == nil || c.buffer.mirror == nil {
		return overlap(c.mem, other.mem)
	}
	return overlap(c.onAccelerator(), other.onAccelerator())
}

// onAccelerator is the memory of the accelerator for which the chunk has memory of the host.
func (c *chunk) onAccelerator() []byte {
	return c.buffer.mirror.accelerator.Addresses()[c.offset:][:len(c.mem)]
}

// late notes that push i was written into the chunk, which has ended since.
func (c *chunk) late(i int, d *wire.Descriptor) (l latePush, err error) {
	l.index = i
	if !c.direct {
		l.mem = c.mem[:d.Bytes]
		return l, nil
	}
	whole := &c.buffer.mirror.accelerator
	t, err := tensor.FromRegion(whole.Region(), whole.Offset()+c.offset, tensor.Uint8, tensor.ShapeOf(int64(d.Bytes)))
	if err == nil {
		err = t.Retain()
	}
	if err == nil {
		l.accelerator = t
	}
	return l, err
}

// releaseLate ends the use of memory of accelerators that pushes came late to.
func (r *requestSlot) releaseLate() {
	for i := range r.late {
		r.late[i].accelerator.Release()
		r.late[i].accelerator = tensor.Tensor{}
	}
}
