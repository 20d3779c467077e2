package server

import (
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/wire"
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
		m.aims = m.transfer == transferAimed || c.copies && caps.Offload && m.aimWhole(r, caps.InMessage)
		m.prompt = m.aims && !caps.Offload
		c.aimed = c.aimed || m.prompt
		if m.transfer == transferCopied {
			bytes, _ := m.unsent(r)
			c.toCopy += bytes
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

// noteEnd notes when a call has ended that began at this time. The difference does not matter for calls that copy
// nothing.
func (d *responder) noteEnd(c *respondCall, began int64) {
	d.ended = began
	if c.toCopy > 0 || c.aimed {
		d.ended = trace.Now()
	}
}
