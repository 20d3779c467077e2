package link

import (
	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/wire"
)

// acknowledge takes the acknowledgement and the credit of a header, and sends what they made room for. Messages
// whose last frame is acknowledged go to done.
func (x *sender) acknowledge(h *wire.Header, done *queue[Outbound]) {
	x.peerAck = h.Ack
	for f := x.unacked.first(); f != nil && f.sequence <= h.Ack; f = x.unacked.first() {
		x.unacked.pop()
		f.acked = true
		x.finishFrame(f, done)
	}
	if h.Credit > x.credit.freed {
		x.credit.freed, x.credit.requested = h.Credit, false
	}
	if x.waiting > 0 {
		x.pump()
	}
}

// checkReport checks the acknowledgement and the credit of a header.
func (x *sender) checkReport(h *wire.Header) error {
	switch {
	case h.Ack > x.sequence:
		return &stepvan.ProtocolError{Field: "ack", Reason: "acknowledges what was never sent"}
	case h.Ack < x.peerAck:
		return &stepvan.ProtocolError{Field: "ack", Reason: "goes backwards"}
	case h.Credit > x.credit.used:
		return &stepvan.ProtocolError{Field: "credit", Reason: "releases what was never sent"}
	case h.Credit < x.credit.freed:
		return &stepvan.ProtocolError{Field: "credit", Reason: "goes backwards"}
	}
	return nil
}

// finishFrame recycles f when neither the van nor the peer needs it any more. If f was the last frame of its message,
// the message goes into done.
func (x *sender) finishFrame(f *frame, done *queue[Outbound]) {
	if !f.completed || !f.acked {
		return
	}
	if f.last {
		done.push(f.out, &f.out.link)
	}
	x.frames.put(f)
}

// onCompletion takes a frame back from the van. Messages that end successfully go to delivered, those that end with the
// session to lost.
func (x *sender) onCompletion(index int, delivered, lost *queue[Outbound]) {
	s := x.session
	f := x.frames.all[index]
	f.completed = true
	x.inVan -= f.size
	o := f.out
	if o != nil {
		o.inflight--
	}
	switch {
	case o == nil:
		x.frames.put(f)
	case s.state != stateLost || f.acked && f.last:
		x.finishFrame(f, delivered)
	default:
		x.frames.put(f)
		if o.inflight == 0 {
			lost.push(o, &o.link)
		}
	}
	if x.waiting > 0 || s.state == stateClosing {
		x.pump()
	}
}

// abandon collects what was not sent, or not acknowledged, when the session is lost. A message of which the van still
// holds a frame follows with its completion.
func (x *sender) abandon(lost *queue[Outbound]) {
	for c := range x.lanes {
		for !x.lanes[c].empty() {
			o := x.lanes[c].pop()
			x.sources.release(x.session.transport.Registry, o)
			if o.inflight == 0 {
				lost.push(o, &o.link)
			}
		}
	}
	x.filled, x.waiting, x.unsaved = 0, 0, 0
	for !x.unacked.empty() {
		f := x.unacked.pop()
		if f.last && f.out.inflight == 0 {
			lost.push(f.out, &f.out.link)
		}
		if f.completed {
			x.frames.put(f)
		}
	}
}

// lateCompletions are acknowledged messages whose completers the next Poll calls. Driver only, without a lock.
type lateCompletions struct{ queue queue[Outbound] }

// complete calls the completers of acknowledged messages, or puts them off.
func (x *lateCompletions) complete(acknowledged queue[Outbound]) {
	for !acknowledged.empty() {
		o := acknowledged.pop()
		switch {
		case o.Haste.Late:
			x.queue.push(o, &o.link)
		case o.Completer != nil:
			o.Completer.Done(o, nil)
		}
	}
}

// run calls the completers that complete has put off, and reports whether there were any.
func (x *lateCompletions) run() bool {
	if x.queue.empty() {
		return false
	}
	list := x.queue
	x.queue = queue[Outbound]{}
	callCompleters(list, nil)
	return true
}

// callCompleters tells the completers of messages that have ended. No lock is held.
func callCompleters(ended queue[Outbound], err error) {
	for !ended.empty() {
		o := ended.pop()
		if o.Completer != nil {
			o.Completer.Done(o, err)
		}
	}
}
