package peer

import (
	"errors"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/link/handles"
	"github.com/stepvan/stepvan/internal/reuse"
	"github.com/stepvan/stepvan/tensor"
)

// message is a message on its way out. It is used again and again. Peer.mu guards it.
type message struct {
	out    link.Outbound
	to     *remote
	next   *message                // in a messageQueue
	offer  *transfer               // that m is to offer; nil once it does
	record *handles.Record[result] // finishes with m; nil for none
	meta   []byte
	list   [][]byte       // out.Payload
	small  []byte         // memory for a small payload
	region *tensor.Region // pooled memory for a large one
	owner  sender
}

func (m *message) following() **message { return &m.next }

type messageQueue = queue[message, *message]

// outbox has the messages that are not in use. Peer.mu guards it.
type outbox struct {
	p    *Peer
	free reuse.List[message]
}

// sender learns the end of a message. The call comes under Peer.mu.
type sender interface {
	// sent says that the peer has received the message, or why it never will.
	sent(m *message, err error)
}

// message takes a message for r.
func (r *remote) message(o op, request uint64) *message {
	m := r.peer.outbox.free.Take()
	m.out.Channel, m.out.Op, m.out.Flags, m.out.Request, m.out.Generation = link.ChannelPeer, uint8(o), 0, request, 0
	m.to, m.out.Completer, m.out.User = r, (*completer)(r.peer), m
	m.meta, m.list = m.meta[:0], m.list[:0]
	return m
}

// note sends a message that is nothing but a number.
func (r *remote) note(o op, request uint64) { r.send(r.message(o, request)) }

// send sends m as soon as the session takes it. Messages of a channel keep their order.
func (r *remote) send(m *message) {
	m.out.Meta, m.out.Payload = m.meta, m.list
	if r.session == nil || !r.backlog.empty() {
		r.backlog.push(m)
		r.connect(true)
		return
	}
	if !r.take(m) {
		r.backlog.push(m)
	}
}

// take gives m to the link, and reports whether that is over with. When the session has ended, the message waits until
// that is told, and fails then.
func (r *remote) take(m *message) bool {
	if m.offer != nil {
		m.offer.describe(m)
		m.offer, m.out.Meta = nil, m.meta
	}
	err := r.session.Send(&m.out)
	if errors.Is(err, stepvan.ErrInvalid) { // it is larger than the van or the settings allow
		r.peer.outbox.finish(m, err)
		return true
	}
	return err == nil
}

// flush sends what has waited for room or for the session.
func (r *remote) flush() {
	for r.session != nil && !r.backlog.empty() {
		m := r.backlog.pop()
		if !r.take(m) {
			r.backlog.unpop(m)
			return
		}
	}
}

// release takes back a message that nobody uses any more.
func (x *outbox) release(m *message) {
	if m.region != nil {
		x.p.link.Memory().Put(m.region)
		m.region = nil
	}
	m.list = reuse.Slice(m.list)
	m.out.Payload, m.out.Meta, m.out.Spare, m.owner, m.record, m.offer, m.to = nil, nil, nil, nil, nil, nil, nil
	x.free.Put(m)
}

// completer is a Peer that learns from the link that messages have ended.
type completer Peer

// Done implements link.Completer.
func (c *completer) Done(o *link.Outbound, err error) {
	p := (*Peer)(c)
	m := o.User.(*message)
	p.mu.Lock()
	defer p.unlock()
	r := m.to
	p.outbox.finish(m, err)
	r.flush()
}

// finish ends a message.
func (x *outbox) finish(m *message, err error) {
	if owner := m.owner; owner != nil {
		owner.sent(m, err)
	}
	if m.record != nil {
		if err != nil {
			err = m.to.failure(m.record.Value.op, err)
		}
		x.p.results.Finish(m.record, err)
	}
	x.release(m)
}

// drop fails all messages of a queue. Under Peer.mu.
func (x *outbox) drop(q *messageQueue, cause error) {
	for !q.empty() {
		x.finish(q.pop(), cause)
	}
}
