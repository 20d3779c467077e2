package server

import (
	"errors"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/link/handles"
	"github.com/stepvan/stepvan/internal/reuse"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/trace"
)

// responder runs the calls of Respond and its variants. Server.mu guards it.
type responder struct {
	s       *Server
	records *handles.Table[responseState]
	free    *respondCall
}

// respondCall is one call of Respond or a variant, on its caller's goroutine.
type respondCall struct {
	next     *respondCall // among the free ones
	requests []*requestSlot
	messages []*message      // one per request
	copies   bool            // the tensors are the caller's again at the end of the call
	sources  []tensor.Tensor // that have spare memory, retained until the end of the call

	// What the link gets.
	sessions  []*link.Session
	outbounds []*link.Outbound
	skipped   []skipped

	// For the time after the unlock.
	release []*link.Inbound // messages of the answered requests
	queued  []*workerPeer   // whose outboxes have messages of this call
}

// skipped is a message that cannot be sent.
type skipped struct {
	message *message
	why     error
}

// respond answers requests: it claims them, makes the messages, offers these to the link, which takes all or none, and
// ends the requests. After an error the requests are as before. It unlocks Server.mu for what takes longer than to lock
// it again: large copies, large messages, and what may come back into the server.
// +checklocksignore: it unlocks in the middle and locks again.
func (d *responder) respond(a *answers, copies bool) (resp Response, borrowed bool, err error) {
	at := trace.Now()
	mu := &d.s.mu
	mu.Lock()
	defer mu.Unlock()
	c := d.newCall(copies)
	if err = d.prepare(c, a); err == nil && copies {
		if c.unsentBytes() <= link.LockedBytes {
			borrowed = d.copyOut(c)
		} else {
			func() {
				mu.Unlock()
				defer mu.Lock()
				borrowed = d.copyOut(c)
			}()
		}
	}
	var record *handles.Record[responseState]
	if err == nil {
		record = d.encode(c, at)
		for again := len(c.sessions) > 0; again; again = err != nil && d.refused(c, &err) {
			if c.isSmall() {
				err = d.s.transport.SendAll(c.sessions, c.outbounds)
			} else {
				func() {
					mu.Unlock()
					defer mu.Lock()
					err = d.s.transport.SendAll(c.sessions, c.outbounds)
				}()
			}
		}
	}
	if err == nil {
		resp = d.finish(c, record)
	} else {
		d.undo(c, record)
		borrowed = false
	}
	if len(c.release) > 0 || len(c.queued) > 0 {
		func() {
			mu.Unlock()
			defer mu.Lock()
			d.cleanUp(c)
		}()
	}
	d.recycle(c)
	return resp, borrowed, err
}

// newCall returns an empty call. Under Server.mu, as what follows unless it says else.
func (d *responder) newCall(copies bool) *respondCall {
	c := d.free
	if c == nil {
		c = new(respondCall)
	} else {
		d.free, c.next = c.next, nil
	}
	c.copies = copies
	return c
}

// encode makes the messages and lists them for the link. It leaves out those of requests that were answered at stop.
func (d *responder) encode(c *respondCall, at int64) *handles.Record[responseState] {
	record := d.records.Open()
	record.Value = responseState{pending: len(c.messages) + 1} // one for this call
	stopped := false
	for i, m := range c.messages {
		r := c.requests[i]
		m.record = record
		if d.s.opt.CheckBorrowed && m.spare == nil {
			m.recordChecksums(r)
		}
		m.encodeResponse(d.s, r, at)
		c.sessions = append(c.sessions, r.session)
		c.outbounds = append(c.outbounds, &m.out)
		stopped = stopped || r.answeredAtStop()
	}
	if stopped {
		c.dropUnsendable()
	}
	return record
}

// isSmall reports whether the link takes less time for the messages than unlocking would.
func (c *respondCall) isSmall() bool {
	return len(c.messages) == 1 && c.messages[0].bytes <= link.LockedBytes
}

// refused reports whether to offer the messages again after a refusal of the link, and clears err where that was no
// failure. It leaves out the messages whose workers are gone. Where the call copies, the workers' outboxes take what a
// full queue does not.
func (d *responder) refused(c *respondCall, err *error) (again bool) {
	switch {
	case c.copies && errors.Is(*err, stepvan.ErrWouldBlock):
		c.queue()
	case !c.dropUnsendable():
		return false
	default:
		again = len(c.sessions) > 0
	}
	*err = nil
	return again
}

// dropUnsendable lists again what can be sent, and what cannot. It reports whether something that was listed cannot.
func (c *respondCall) dropUnsendable() bool {
	offered := len(c.sessions)
	c.sessions, c.outbounds, c.skipped = c.sessions[:0], c.outbounds[:0], c.skipped[:0]
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

// finish ends the answered requests. The messages are the link's, except those that were skipped.
func (d *responder) finish(c *respondCall, record *handles.Record[responseState]) Response {
	resp := Response{s: d.s, id: record.ID()}
	for _, k := range c.skipped {
		if k.message.failsResponse(k.why) {
			record.Value.fail(k.message.to.failure("respond", k.why))
		}
		d.s.messages.recycle(k.message)
		d.countDown(record)
	}
	for _, r := range c.requests {
		if m := d.s.requests.recycle(r); m != nil {
			c.release = append(c.release, m)
		}
	}
	d.countDown(record)
	return resp
}

// undo gives the requests back to the program. record is nil when it was not opened.
func (d *responder) undo(c *respondCall, record *handles.Record[responseState]) {
	if record != nil {
		d.records.Drop(record)
	}
	for i, m := range c.messages {
		c.requests[i].on(eventUndo)
		d.s.messages.recycle(m)
	}
}

// cleanUp releases the messages of the answered requests, and sends what is queued. Without Server.mu.
func (d *responder) cleanUp(c *respondCall) {
	for _, m := range c.release {
		m.Release()
	}
	for _, w := range c.queued {
		d.s.messages.flush(w)
	}
}

// recycle takes the call back.
func (d *responder) recycle(c *respondCall) {
	for i := range c.sources {
		c.sources[i].Release()
	}
	c.sessions, c.skipped, c.release = reuse.Slice(c.sessions), reuse.Slice(c.skipped), reuse.Slice(c.release)
	c.sources, c.queued = reuse.Slice(c.sources), reuse.Slice(c.queued)
	c.requests, c.messages, c.outbounds = c.requests[:0], c.messages[:0], c.outbounds[:0] // which the server keeps anyway
	c.next, d.free = d.free, c
}

// countDown counts one message of a response, or the call that made them.
func (d *responder) countDown(record *handles.Record[responseState]) {
	if record.Value.countDown() {
		d.records.Finish(record, record.Value.err)
	}
}
