package peer

import (
	"fmt"
	"slices"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link"
)

// Topic names what a small message is about. It has at most 128 bytes.
type Topic string

const (
	maxTopic = 128
	// MaxMail is the largest body of a [Peer.Mail].
	MaxMail = 64 << 10
	// maxMailOut bounds the messages to a peer that it has not received.
	maxMailOut = 4096
	// maxUnread bounds the mail of a peer that nobody has listened to, in bytes. Many peers may send to one, and each
	// message is small, so more says that nobody reads them.
	maxUnread = 64 << 20
	// leastMail is how much a message counts at least. So at most 65,536 wait, however small they are.
	leastMail = 1 << 10
)

// postbox counts the mail to and from a peer. A peer tells what it has read, and the other one sends no more than has
// room there. All counts but out are in bytes, as chargeOf gives them. Peer.mu guards it.
type postbox struct {
	limit    int64 // of unread mail, in both directions: maxUnread
	remote   *remote
	out      int   // messages that the peer has not received
	to       int64 // sent to the peer since the last loss of a session
	read     int64 // of those, as the peer has said, less what it had not read from before that loss
	from     int64 // came from the peer since the last loss
	unread   int64 // from the peer, whenever it came
	reported int64 // from - unread, as the peer knows
	open     bool  // there is a session
	asked    bool  // in which the peer has asked what was read
	lost     bool  // there was one that was lost
}

func (b *postbox) init(r *remote) { b.remote, b.limit = r, maxUnread }

// chargeOf is what a message counts.
func chargeOf(topic Topic, body []byte) int64 { return max(leastMail, int64(len(topic)+len(body))) }

// hasRoom reports whether the peer may be sent a message.
func (b *postbox) hasRoom(charge int64) bool { return b.to-b.read+charge <= b.limit }

// opened asks over a further session what the peer has read, and tells it the same. Mail may have got lost before.
func (b *postbox) opened() {
	b.open, b.asked = true, false
	if b.lost {
		b.tell(askRead)
	}
}

// fail notes the loss of what is on its way. Until the peer tells, all that went to it counts as unread.
func (b *postbox) fail() {
	if b.open {
		b.open, b.lost = false, true
		b.read -= b.to
		b.from, b.reported = 0, 0
	}
	b.to = 0
}

// askRead is the generation of an opRead that the peer answers with one of its own.
const askRead = 1

// tell tells the peer what was read.
func (b *postbox) tell(ask uint32) {
	b.reported = b.from - b.unread
	m := b.remote.message(opRead, uint64(b.reported))
	m.out.Generation = ask
	b.remote.send(m)
}

// wasRead handles what the peer has read.
func (b *postbox) wasRead(m *link.Inbound) error {
	n := int64(m.Header.Request)
	if n > b.to || n < -b.limit {
		return errs.Protocol("request", 56, "a peer has read %d bytes of mail, and was sent %d", n, b.to)
	}
	b.read = n
	if m.Header.Generation != askRead {
		return nil
	}
	if b.asked { // a peer that never takes the answers would have them pile up
		return errs.Protocol("generation", 64, "a peer asks twice over one session what was read of its mail")
	}
	b.asked = true
	b.tell(0)
	return nil
}

// listener is a topic, and what waits for it. Peer.mu guards it.
type listener struct {
	topic  Topic
	by     *listening // nil while nobody listens
	queue  []received
	active bool // somebody calls a function of the program
}

// listening is one call of Listen.
type listening struct {
	stop func()
	f    func(stop func(), from stepvan.Rank, body []byte)
}

// received is a message of a topic.
type received struct {
	from *remote
	body []byte
}

// Mail sends a small message to a peer, which may be this one. Messages to one peer arrive in order. Those on a topic
// that nobody listens to wait there. body is copied. Mail never blocks:
//
//   - [stepvan.ErrInvalid]: the topic or the body is too long, or there is no such peer;
//   - [stepvan.ErrWouldBlock]: the peer has not received 4,096 earlier ones, or 64 MiB of them wait there for a
//     listener. A message counts at least 1 KiB. Try again later;
//   - [stepvan.ErrPeerLost]: the peer died or left. A peer that dies later may not have received the message.
func (p *Peer) Mail(to stepvan.Rank, topic Topic, body []byte) error {
	if len(topic) > maxTopic || len(body) > MaxMail {
		return errs.Invalid("mail: topic or body: too long (got %d and %d bytes, want at most %d and %d): send a tensor instead", len(topic), len(body), maxTopic, MaxMail)
	}
	p.mu.Lock()
	defer p.unlock()
	r, err := p.find("mail", to)
	if err != nil {
		return err
	}
	if r.mail.out >= maxMailOut {
		return &stepvan.OpError{Op: "mail", Peer: r.Name, Err: fmt.Errorf("%d messages have not been received: %w", r.mail.out, stepvan.ErrWouldBlock)}
	}
	if r.self() {
		return r.mail.keep(topic, received{r, slices.Clone(body)})
	}
	charge := chargeOf(topic, body)
	if !r.mail.hasRoom(charge) {
		return r.mail.full()
	}
	r.mail.out++
	r.mail.to += charge
	m := r.message(opMail, 0)
	m.owner = &r.mail
	m.meta = append(m.meta, topic...)
	if len(body) > 0 {
		m.small = append(m.small[:0], body...)
		m.list = append(m.list, m.small)
	}
	r.send(m)
	return nil
}

// sent implements sender.
func (b *postbox) sent(*message, error) { b.out-- }

// came takes a message of the peer.
func (b *postbox) came(m *link.Inbound) error {
	if len(m.Meta) > maxTopic || m.Header.Total > MaxMail {
		return errs.Protocol("meta", 76, "mail with a topic of %d bytes and a body of %d", len(m.Meta), m.Header.Total)
	}
	if err := b.keep(Topic(m.Meta), received{b.remote, slices.Clone(m.Payload)}); err != nil {
		return errs.Protocol("op", 7, "%d bytes of mail wait, and nobody listens to %q", b.unread, m.Meta)
	}
	return nil
}

// keep has a message delivered, or wait until somebody listens.
func (b *postbox) keep(topic Topic, m received) error {
	charge := chargeOf(topic, m.body)
	if b.unread+charge > b.limit {
		return b.full()
	}
	p := b.remote.peer
	l := p.users.listeners[topic]
	if l == nil {
		l = &listener{topic: topic}
		p.users.listeners[topic] = l
	}
	b.from += charge
	b.unread += charge
	l.queue = append(l.queue, m)
	l.deliver(p)
	return nil
}

// full is the error of a message for which a peer has no room.
func (b *postbox) full() error {
	return &stepvan.OpError{Op: "mail", Peer: b.remote.Name, Err: fmt.Errorf(
		"it has %d KiB of unread messages of this peer: have it listen to all topics that it is sent, and try again: %w", b.limit>>10, stepvan.ErrWouldBlock)}
}

// take notes that a message was read.
func (b *postbox) take(charge int64) {
	b.unread -= charge
	if b.open && b.from-b.unread-b.reported >= b.limit/4 {
		b.tell(0)
	}
}

// deliver calls the listener for what waits. Under Peer.mu, which is unlocked during the calls.
func (l *listener) deliver(p *Peer) {
	if l.active {
		return
	}
	l.active = true
	for l.by != nil && len(l.queue) > 0 {
		m := l.queue[0]
		l.queue[0] = received{}
		l.queue = l.queue[1:]
		m.from.mail.take(chargeOf(l.topic, m.body))
		by := l.by
		p.mu.Unlock()
		by.f(by.stop, m.from.Rank, m.body)
		p.mu.Lock()
	}
	l.active = false
}

// Listen has f called for each message on a topic, also those that wait. The calls for a topic come one at a time, and
// in the order of each sender. The goroutine that drives the node makes them, or the caller of Listen. f must not
// block. body is valid during the call. A topic has one listener at a time, until stop.
func (p *Peer) Listen(topic Topic, f func(from stepvan.Rank, body []byte)) (stop func(), err error) {
	return p.ListenWithStop(topic, func(_ func(), from stepvan.Rank, body []byte) { f(from, body) })
}

// ListenWithStop is [Peer.Listen] for a function that may stop it. After stop f gets no other message, also during the
// first calls, which come before ListenWithStop returns.
func (p *Peer) ListenWithStop(topic Topic, f func(stop func(), from stepvan.Rank, body []byte)) (stop func(), err error) {
	p.mu.Lock()
	defer p.unlock()
	l := p.users.listeners[topic]
	if l == nil {
		l = &listener{topic: topic}
		p.users.listeners[topic] = l
	}
	if l.by != nil {
		return nil, errs.Invalid("listen: topic %q: somebody listens to it already: stop that first", topic)
	}
	by := &listening{f: f}
	by.stop = func() {
		p.mu.Lock()
		defer p.unlock()
		if l.by == by {
			l.by = nil
		}
	}
	l.by = by
	l.deliver(p)
	return by.stop, nil
}
