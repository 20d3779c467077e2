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
	// maxMailIn bounds the messages of a peer for which nobody listens.
	maxMailIn = 1 << 16
)

// postbox counts the mail to and from a peer. Peer.mu guards it.
type postbox struct {
	remote  *remote
	out     int // messages that the peer has not received
	waiting int // messages of the peer that nobody has listened to
}

// listener is a topic, and what waits for it. Peer.mu guards it.
type listener struct {
	f      func(from stepvan.Rank, body []byte) // nil while nobody listens
	queue  []received
	active bool // somebody calls f
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
//   - [stepvan.ErrWouldBlock]: the peer has not received 4,096 earlier ones. Try again later;
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
	r.mail.out++
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
		return errs.Protocol("op", 7, "%d messages of mail wait, and nobody listens to %q", b.waiting, m.Meta)
	}
	return nil
}

// keep has a message delivered, or wait until somebody listens.
func (b *postbox) keep(topic Topic, m received) error {
	if b.waiting == maxMailIn {
		return fmt.Errorf("mail: topic %q: %d messages wait for a listener: %w", topic, b.waiting, stepvan.ErrWouldBlock)
	}
	p := b.remote.peer
	l := p.listeners[topic]
	if l == nil {
		l = &listener{}
		p.listeners[topic] = l
	}
	b.waiting++
	l.queue = append(l.queue, m)
	l.deliver(p)
	return nil
}

// deliver calls the listener for what waits. Under Peer.mu, which is unlocked during the calls.
func (l *listener) deliver(p *Peer) {
	if l.active {
		return
	}
	l.active = true
	for l.f != nil && len(l.queue) > 0 {
		m := l.queue[0]
		l.queue[0] = received{}
		l.queue = l.queue[1:]
		m.from.mail.waiting--
		f := l.f
		p.mu.Unlock()
		f(m.from.Rank, m.body)
		p.mu.Lock()
	}
	l.active = false
}

// Listen has f called for each message on a topic, also those that wait. The calls for a topic come one at a time, and
// in the order of each sender. The goroutine that drives the node makes them, or the caller of Listen. f must not
// block. body is valid during the call. A topic has one listener at a time, until stop.
func (p *Peer) Listen(topic Topic, f func(from stepvan.Rank, body []byte)) (stop func(), err error) {
	p.mu.Lock()
	defer p.unlock()
	l := p.listeners[topic]
	if l == nil {
		l = &listener{}
		p.listeners[topic] = l
	}
	if l.f != nil {
		return nil, errs.Invalid("listen: topic %q: somebody listens to it already: stop that first", topic)
	}
	l.f = f
	l.deliver(p)
	return func() {
		p.mu.Lock()
		defer p.unlock()
		l.f = nil
	}, nil
}
