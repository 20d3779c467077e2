package memvan

import "github.com/stepvan/stepvan/van"

// posting is a segment that the device is to write into granted memory. Guarded by conn.mu.
type posting struct {
	id    van.GrantID
	grant *grant
	to    []byte
	from  []byte
}

// post queues m. The device writes its segments into the peer's memory, except those that travel with the head.
func (e *endpoint) post(m *van.Message, size int64) error {
	e.conn.mu.Lock()
	defer e.conn.unlock()
	if err := e.canSend(); err != nil {
		return err
	}
	p := e.peer
	if err := p.granted.admit(m); err != nil {
		return err
	}
	e.pending++
	f := p.in.take()
	f.fill(m, size, true)
	for i, t := range m.Target {
		b := m.Payload[i]
		switch {
		case t.IsZero():
			f.along = append(f.along, b...)
		case len(b) > 0:
			r := p.granted.byID[t.Grant]
			r.writers++ // until the device has moved it
			f.posted = append(f.posted, posting{t.Grant, r, r.mem[t.Offset:][:len(b)], e.van.opt.Device.bytes(b)})
		}
	}
	p.in.push(f)
	p.ready()
	return nil
}

// runDevice moves what the peer has posted, whether or not e has credit for the messages. By the poller, without locks.
func (e *endpoint) runDevice() {
	c := e.conn
	c.life.RLock() // while it is held, the connection does not end, and the frames stay
	c.mu.Lock()
	for f := e.in.firstPosted(); f != nil; f = e.in.firstPosted() {
		c.mu.Unlock()
		for _, p := range f.posted {
			copy(p.to, p.from)
		}
		c.mu.Lock()
		for _, p := range f.posted {
			p.grant.writers--
			e.granted.retire(p.id, p.grant)
		}
		clear(f.posted)
		f.posted = f.posted[:0]
	}
	w := c.takeWakes()
	c.mu.Unlock()
	c.life.RUnlock()
	c.wakeVans(w)
}

// firstPosted returns the first frame that the device has something to move of, or nil.
func (b *inbox) firstPosted() *frame {
	for i := range b.len() {
		if f := *b.at(i); f.isPosted() {
			return f
		}
	}
	return nil
}
