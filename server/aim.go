package server

import (
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/registry"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/trace"
)

// chooseTransfers decides how each message of the call goes. Under Server.mu.
func (d *responder) chooseTransfers(c *respondCall) {
	for i, m := range c.messages {
		r := c.requests[i]
		caps := r.session.Caps()
		if m.transfer = transferCopied; !c.copies {
			m.transfer = d.copying.choose(m, r, d.ended)
		}
		m.aims = m.transfer == transferAimed || c.copies && caps.Offload && m.aimWhole(r, nil)
		if !c.copies && !m.aims && caps.Registered {
			m.noteStreamed(r, d.copying.registry)
		}
		m.prompt = m.aims && !caps.Offload
		c.aimed = c.aimed || m.prompt
		c.prepares = c.prepares || c.copies && m.aims && caps.Registered
		if m.transfer == transferCopied {
			bytes, _ := m.unsent(r)
			c.toCopy += bytes
		}
	}
}

// noteStreamed notes the answers that are not written since their memory is not registered, although the pulls say
// where they belong.
func (m *message) noteStreamed(r *requestSlot, all *registry.Registry) {
	along := r.session.Caps().InMessage
	for i := range m.answers {
		b := m.answers[i].tensor.Bytes()
		if int64(len(b)) > along && !m.answers[i].inPlace && r.meta.Pulls[i].Region != 0 && !all.Covers(b) {
			all.NoteStreamed("answer", r.pulls[i].Key, len(b))
		}
	}
}

// aimAt has the answer written where the pull says, and says so in the descriptor of the answer.
func (m *message) aimAt(a *answer, d, pull *wire.Descriptor) {
	if !m.aims {
		return
	}
	if d.Bytes > 0 && !a.along {
		d.Region, d.Offset, d.Generation = pull.Region, pull.Offset, pull.Generation
	}
	m.targets = append(m.targets, link.TargetOf(d))
}

// canAim reports whether the device reaches the memory that m is written from, which copyOut has made. Answers that
// were to be copied, and are not, are the program's tensors.
func (m *message) canAim(r *requestSlot, all *registry.Registry) bool {
	if !r.session.Caps().Registered {
		return true
	}
	if m.saved {
		return all.Covers(m.spare.Bytes())
	}
	return m.aimWhole(r, all)
}

// prepareMemory registers the arenas of tensors that the program names for the first time. It may block. Without
// Server.mu.
func (a *answers) prepareMemory(r *registry.Registry) {
	for i := range a.tensors {
		r.Prepare(&a.tensors[i])
	}
	if a.rows != nil {
		r.Prepare(a.rows)
	}
}

// prepareSpare is the same for pooled memory.
func prepareSpare(r *registry.Registry, region *tensor.Region) {
	if !r.Needed() {
		return
	}
	if t, err := tensor.FromRegion(region, 0, tensor.Uint8, tensor.ShapeOf(int64(region.Len()))); err == nil {
		r.Prepare(&t)
	}
}

// noteEnd notes when a call has ended that began at this time. The difference does not matter for calls that copy
// nothing.
func (d *responder) noteEnd(c *respondCall, began int64) {
	d.ended = began
	if c.toCopy > 0 || c.aimed {
		d.ended = trace.Now()
	}
}
