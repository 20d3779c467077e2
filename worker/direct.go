package worker

import (
	"slices"

	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/registry"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/tensor"
)

// A device of the van may reach memory of an accelerator that is registered. Then it writes pushes from there into
// chunks of the servers, and servers write answers there. Memory of the host stands for such pulls all the same: an
// answer may come in a message, and the processor must have a place for that.

// direct is what the device of a van moves to and from an accelerator. Worker.mu guards it.
type direct struct {
	pushes bool            // no memory of the host stands for the pushes
	holds  []registry.Hold // of what messages with them are written from
	held   []bool          // for each push: it is registered, and stays so
	lends  []bool          // for each of staged.pulls: the server writes the answer to the accelerator
	onHost []bool          // for each of staged.pulls: the answer has come to memory of the host
}

// release ends the holds.
func (d *direct) release(r *registry.Registry) {
	for _, h := range d.holds {
		r.Release(h)
	}
	d.holds, d.held = nil, nil
}

// onAccelerator reports whether the tensor has bytes, and an accelerator holds them.
func onAccelerator(t tensor.Tensor) bool { return t.Len() > 0 && !t.Device().IsHost() }

// canWritePushes reports whether x has pushes of an accelerator, and devices write all pushes into chunks of the
// servers, beside what travels with the head. What is registered is held. Under Worker.mu.
func (x *activeExchange) canWritePushes() bool {
	for _, r := range x.requests {
		if len(r.pushes) > 0 && !r.canWritePushes() {
			return false
		}
	}
	return slices.ContainsFunc(x.push, onAccelerator)
}

func (r *request) canWritePushes() bool {
	caps := r.server.session.Caps()
	if !caps.Offload || !caps.Registered {
		return false
	}
	along := caps.InMessage
	for _, i := range r.pushes {
		t := &r.exchange.push[i]
		n := t.Len()
		c := r.server.chunks[r.exchange.pushKeys[i]]
		switch {
		case n == 0, c.fits(n) && r.exchange.staged.direct.held[i]:
		case t.Device().IsHost() && int64(n) <= along:
			along -= int64(n)
		default:
			return false
		}
	}
	return true
}

// holdPushes keeps the memory of the pushes that is registered so until x ends. Under Worker.mu.
func (s *staged) holdPushes(x *activeExchange, r *registry.Registry) {
	s.direct.held = make([]bool, len(x.push))
	for i := range x.push {
		t := &x.push[i]
		if t.Len() == 0 {
			continue
		}
		if h, ok := r.Hold(t.Addresses()); ok {
			s.direct.holds, s.direct.held[i] = append(s.direct.holds, h), true
		}
	}
}

// isDirect reports whether a device writes pushes of r from memory of an accelerator.
func (r *request) isDirect() bool {
	x := r.exchange
	return x.staged != nil && x.staged.direct.pushes &&
		slices.ContainsFunc(r.pushes, func(i int) bool { return onAccelerator(x.push[i]) })
}

// isRegistered reports whether a device may write push i of r from where it is.
func (r *request) isRegistered(i int) bool {
	if s := r.exchange.staged; s != nil && s.direct.pushes {
		return s.direct.held[i]
	}
	return r.server.granted.Registered(r.exchange.push[i].Addresses())
}

// room returns the memory into which v writes the answer to pull i where it can: that of the accelerator, or that of
// the host. Under Worker.mu.
func (x *activeExchange) room(l *lender, v *serverPeer, i int) []byte {
	s := x.staged
	j := s.pullOf(i)
	if j < 0 || !v.session.Caps().Offload || !v.session.Caps().Registered {
		return x.pull[i].Bytes()
	}
	if t := &s.in[j].Tensor; t.Len() > 0 && l.memory.Registry.Covers(t.Addresses()) {
		s.direct.lends[j] = true
		return t.Addresses()
	}
	return x.pull[i].Bytes()
}

// pullOf returns the number of pull i among those of the accelerator, or -1.
func (s *staged) pullOf(i int) int {
	if s != nil {
		for j, k := range s.pulls {
			if k == i {
				return j
			}
		}
	}
	return -1
}

// lentPull is the tensor whose memory a server may write the answer to pull i into.
func (x *activeExchange) lentPull(i int) *tensor.Tensor {
	if j := x.staged.pullOf(i); j >= 0 && x.staged.direct.lends[j] {
		return &x.staged.in[j].Tensor
	}
	return &x.pull[i]
}

// noteLanded notes which answers of m are in memory of the host, although the server was to write them to the
// accelerator. Under Worker.mu.
func (r *request) noteLanded(got []wire.Descriptor, m *link.Inbound) {
	s := r.exchange.staged
	if s == nil {
		return
	}
	for k, i := range r.pulls {
		if j := s.pullOf(i); j >= 0 && isInMessage(m, &got[k]) {
			s.direct.onHost[j] = true
		}
	}
}

// fits reports whether the server may be written a push of n bytes there.
func (c *chunk) fits(n int) bool { return c.target.Grant != 0 && c.bytes >= uint64(n) }
