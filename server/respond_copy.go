package server

import (
	"cmp"
	"errors"
	"slices"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/bulk"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/reuse"
	"github.com/stepvan/stepvan/tensor"
)

// checkRoom refuses what the link would refuse because a queue is full, before the call copies anything for it. Calls
// that return the tensors copy them in any case: what a queue does not take waits in an outbox. Under Server.mu.
func (c *respondCall) checkRoom() error {
	if c.toCopy == 0 || c.copies {
		return nil
	}
	for _, r := range c.requests {
		c.sessions = append(c.sessions, r.session)
	}
	err := link.CheckRoom(c.sessions)
	c.sessions = c.sessions[:0]
	return err
}

// copyOut writes answers into the memory of their workers, and takes spare memory for the others. borrowed reports that
// the pool had no room for some. With or without Server.mu.
func (d *responder) copyOut(c *respondCall) (borrowed bool) {
	for i, m := range c.messages {
		if m.transfer != transferCopied {
			continue
		}
		r := c.requests[i]
		rest := m.copyToWorker(r)
		if rest == 0 {
			continue
		}
		region, err := d.s.opt.Memory.Get(int(rest))
		if err != nil {
			borrowed = true
			m.aims = m.aims && m.canAim(r, d.copying.registry)
			continue
		}
		m.spare = region
		for k := range m.answers {
			if a := &m.answers[k]; !a.inPlace {
				c.sources = append(c.sources, a.tensor)
			}
		}
		if r.session.OneSided() && (rest > link.LockedBytes || m.aims) {
			m.save()
		}
		if m.aims {
			prepareSpare(d.copying.registry, region)
			m.aims = m.canAim(r, d.copying.registry)
		}
	}
	return borrowed
}

// save copies the answers to the spare memory. Over a van that shares memory the link would do so, and hold the mutex
// of its session meanwhile. A device takes answers that it writes from there.
func (m *message) save() {
	to := m.spare.Bytes()
	for i := range m.answers {
		if a := &m.answers[i]; !a.inPlace {
			to = to[bulk.Copy(to, a.tensor.Bytes()):]
		}
	}
	m.saved = true
}

// source returns the bytes of an answer for the payload, before which the payload has so many bytes.
func (m *message) source(t *tensor.Tensor, before int64) []byte {
	if m.saved {
		return m.spare.Bytes()[before : before+int64(t.Len())]
	}
	return t.Addresses()
}

// copyToWorker copies answers into the worker's memory where the server reaches it. It returns the bytes of the others.
func (m *message) copyToWorker(r *requestSlot) (rest int64) {
	var whole int64
	for i := range m.answers {
		whole += int64(m.answers[i].tensor.Len())
	}
	for i := range m.answers {
		a := &m.answers[i]
		if a.inPlace {
			continue
		}
		to := r.pullMemory(i)
		if to == nil {
			rest += int64(a.tensor.Len())
			continue
		}
		bulk.CopyPart(to, a.tensor.Bytes(), whole)
		a.tensor.Release()
		a.inPlace = true
	}
	return rest
}

// queue moves the messages that a full queue has refused to the outboxes of their workers.
func (c *respondCall) queue() {
	for i, m := range c.messages {
		session := c.requests[i].session
		switch {
		case c.skips(m):
			continue
		case m.to.session != session:
			c.skipped = append(c.skipped, skipped{m, cmp.Or(m.to.gone, session.Err(), stepvan.ErrPeerLost)})
			continue
		}
		if m.spare != nil && !m.saved {
			m.moveToSpare()
		}
		m.to.outbox = append(m.to.outbox, m)
		c.queued = append(c.queued, m.to)
	}
}

func (c *respondCall) skips(m *message) bool {
	return slices.ContainsFunc(c.skipped, func(k skipped) bool { return k.message == m })
}

// moveToSpare copies the payload to the spare memory, so that the answers are the caller's again.
func (m *message) moveToSpare() {
	mem := m.spare.Bytes()
	to := mem
	for _, b := range m.payload {
		to = to[bulk.Copy(to, b):]
	}
	clear(m.payload)
	m.payload = append(m.payload[:0], mem[:len(mem)-len(to)])
	m.out.Payload, m.out.Spare = m.payload, nil
}

// RespondCopy is [Server.Respond] for programs that write to their tensors again at once. When it returns and borrowed
// is false, the tensors are the caller's again. The server writes an answer into the worker's memory where it reaches
// that (see [Request.Out]). Of the other answers it copies to pooled memory what the van does not take at once. When
// the pool is full, borrowed is true. Then the tensors are borrowed until the Response is done, and the caller waits
// for it before it writes to them.
//
// RespondCopy returns the errors of Respond without stepvan.ErrWouldBlock: what a full queue does not take goes as soon
// as it fits.
//
// Any goroutine may call it, and it never waits. Budget: 0 allocations in the steady state, and one message. It copies
// once where it reaches the worker's memory, else at most once beside the copies of the van.
func (s *Server) RespondCopy(tensors []tensor.Tensor, id RequestID) (r Response, borrowed bool, err error) {
	return s.responder.respond(&answers{tensors: tensors, id: id}, true)
}

// refused tells what follows when the link has taken the messages, or refused them with err: whether to offer them
// again, and the error that is left. It leaves out the messages whose workers are gone. If the call copies, the
// workers' outboxes take what a full queue does not.
func (d *responder) refused(c *respondCall, err error) (again bool, rest error) {
	switch {
	case err == nil:
		return false, nil
	case c.copies && errors.Is(err, stepvan.ErrWouldBlock):
		c.queue()
		return false, nil
	case !c.dropUnsendable():
		return false, err
	}
	return len(c.sessions) > 0, nil
}

// dropUnsendable lists again what can be sent, and what cannot. It reports whether something that was listed cannot.
func (c *respondCall) dropUnsendable() bool {
	offered := len(c.sessions)
	c.sessions, c.outbounds, c.skipped = reuse.Slice(c.sessions), c.outbounds[:0], reuse.Slice(c.skipped)
	for i, m := range c.messages {
		r := c.requests[i]
		if err := r.unsendable(); err != nil {
			c.skipped = append(c.skipped, skipped{m, err})
			continue
		}
		c.sessions = append(c.sessions, r.session)
		c.outbounds = append(c.outbounds, &m.out)
	}
	return len(c.sessions) < offered
}
