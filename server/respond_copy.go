package server

import (
	"cmp"
	"slices"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/bulk"
)

// unsentBytes returns the bytes of the answers that are not in the workers' memory.
func (c *respondCall) unsentBytes() (n int64) {
	for _, m := range c.messages {
		for i := range m.answers {
			if a := &m.answers[i]; !a.inPlace {
				n += int64(a.tensor.Len())
			}
		}
	}
	return n
}

// copyOut writes answers into the memory of their workers, and takes spare memory for the others. borrowed reports that
// the pool had no room for some. With or without Server.mu.
func (d *responder) copyOut(c *respondCall) (borrowed bool) {
	for i, m := range c.messages {
		rest := m.copyToWorker(c.requests[i])
		if rest == 0 {
			continue
		}
		region, err := d.s.opt.Memory.Get(int(rest))
		if err != nil {
			borrowed = true
			continue
		}
		m.spare = region
		for k := range m.answers {
			if a := &m.answers[k]; !a.inPlace {
				c.sources = append(c.sources, a.tensor)
			}
		}
	}
	return borrowed
}

// copyToWorker copies answers into the worker's memory where the server reaches it. It returns the bytes of the others.
func (m *message) copyToWorker(r *requestSlot) (rest int64) {
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
		bulk.Copy(to, a.tensor.Bytes())
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
		if m.spare != nil {
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
