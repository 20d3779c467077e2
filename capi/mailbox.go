package main

// #include "boundary.h"
import "C"

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/capi/internal/numbers"
	"github.com/stepvan/stepvan/peer"
)

// mailbox has the messages of a topic, or the notes of a window, until C takes them.
type mailbox struct {
	node   *node
	what   string                                                                           // for errors
	listen func(func(stop func(), from stepvan.Rank, body []byte)) (stop func(), err error) // nil for notes

	mu       sync.Mutex
	messages []mail
	bytes    int           // of messages
	stop     func()        // nil while nobody listens
	silences int           // how often it has stopped to listen
	changed  chan struct{} // closed when a message comes
	lost     int           // notes that found no room
	ended    bool
}

// mail is a message.
type mail struct {
	from stepvan.Rank
	body []byte
}

// maxMailbox and maxMailboxBytes are how much waits here. More of a topic waits in package peer, which bounds it for
// each peer.
const (
	maxMailbox      = 4096
	maxMailboxBytes = 16 << 20
)

// full reports whether no more is to come. Under mu.
func (m *mailbox) full() bool { return len(m.messages) >= maxMailbox || m.bytes >= maxMailboxBytes }

func newMailbox(what string, n *node) *mailbox {
	return &mailbox{node: n, what: what, changed: make(chan struct{})}
}

// come adds a message of the topic. The driver calls it, or open.
func (m *mailbox) come(stop func(), from stepvan.Rank, body []byte) {
	m.mu.Lock()
	m.stop = stop
	m.mu.Unlock()
	m.put(from, body)
}

// put adds a message. The driver calls it.
func (m *mailbox) put(from stepvan.Rank, body []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.ended:
		m.silence()
		return
	case m.full() && m.listen == nil:
		m.lost++
	default:
		m.messages = append(m.messages, mail{from, slices.Clone(body)})
		m.bytes += len(body)
	}
	m.wake()
	if m.full() {
		m.silence()
	}
}

// wake wakes those that wait. Under mu.
func (m *mailbox) wake() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// silence stops listening. Under mu.
func (m *mailbox) silence() {
	if m.stop != nil {
		m.stop()
		m.stop = nil
		m.silences++
	}
}

// open listens. Messages may come before it returns.
func (m *mailbox) open() error {
	m.mu.Lock()
	before := m.silences
	m.mu.Unlock()
	stop, err := m.listen(m.come)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.silences == before { // else the messages that waited have filled it
		m.stop = stop
	}
	if m.ended {
		m.silence()
	}
	return nil
}

// next waits for a message, and has use take it. When use returns an error, the message stays.
func (m *mailbox) next(ctx context.Context, use func(mail) error) error {
	err := m.await(ctx)
	if err != nil {
		return err
	}
	again, err := m.take(use)
	if again {
		if failed := m.open(); err == nil {
			err = failed
		}
	}
	return err
}

// take takes the first message, and reports whether the mailbox shall listen again.
func (m *mailbox) take(use func(mail) error) (again bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.lost > 0:
		n := m.lost
		m.lost = 0
		return false, &coded{codeWouldBlock, fmt.Errorf("%s: %d notes found no room and are lost: take them faster", m.what, n)}
	case len(m.messages) == 0:
		return false, errTimeout // another thread took it
	}
	if err := use(m.messages[0]); err != nil {
		return false, err
	}
	m.bytes -= len(m.messages[0].body)
	m.messages[0] = mail{}
	m.messages = m.messages[1:]
	return m.listen != nil && m.stop == nil && len(m.messages) == 0, nil
}

// await waits until there is something to take.
func (m *mailbox) await(ctx context.Context) error {
	for {
		changed, err := m.look()
		if changed == nil {
			return err
		}
		select {
		case <-changed:
		case <-m.node.live.Load().Done():
			if err := m.node.live.Load().Err(); err != nil {
				return err
			}
			return errStopped
		case <-ctx.Done():
			return errTimeout
		}
	}
}

// look returns nil when there is something to take, or an error.
func (m *mailbox) look() (chan struct{}, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.ended:
		return nil, &coded{codeStale, fmt.Errorf("%s: the mailbox was closed", m.what)}
	case len(m.messages) > 0 || m.lost > 0:
		return nil, nil
	}
	return m.changed, nil
}

// end ends the mailbox. Messages that wait are lost.
func (m *mailbox) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended, m.messages = true, nil
	m.silence()
	m.wake()
}

// goMail implements
//
//	int32_t stepvan_mail(uint64_t node, uint32_t to, const char *topic, const void *body, uint64_t bytes,
//	    stepvan_error *error);
//
//export goMail
func goMail(id cUint64, to cUint32, topic *C.char, body unsafe.Pointer, n cUint64, e *cError) cCode {
	return onPeer(id, e, func(live *node) error {
		if err := live.checkRunning(); err != nil {
			return err
		}
		if topic == nil || body == nil && n > 0 || !addressable(body, uint64(n)) {
			return isNull("topic and body")
		}
		return live.peer.Mail(rankOf(to), peer.Topic(C.GoString(topic)), list[byte](body, n))
	})
}

// goListen implements
//
//	int32_t stepvan_listen(uint64_t node, const char *topic, uint64_t *mailbox, stepvan_error *error);
//
//export goListen
func goListen(id cUint64, topic *C.char, number *cUint64, e *cError) cCode {
	return onPeer(id, e, func(n *node) error {
		if err := n.checkRunning(); err != nil {
			return err
		}
		if topic == nil || number == nil {
			return isNull("topic and mailbox")
		}
		name := peer.Topic(C.GoString(topic))
		m := newMailbox(fmt.Sprintf("listen: topic %q", string(name)), n)
		m.listen = func(f func(func(), stepvan.Rank, []byte)) (func(), error) { return n.peer.ListenWithStop(name, f) }
		if err := m.open(); err != nil {
			return err
		}
		return m.number(number)
	})
}

// number gives the mailbox a number, or ends it.
func (m *mailbox) number(number *cUint64) error {
	id := mailboxes.Put(m)
	if id == 0 {
		m.end()
		return tooMany("mailboxes")
	}
	*number = cUint64(id)
	return nil
}

// noMailbox is the error of a number without a mailbox.
func noMailbox(number cUint64) error { return missing(&mailboxes, "mailbox", "was closed", number) }

// goMailboxNext implements
//
//	int32_t stepvan_mailbox_next(uint64_t mailbox, int64_t timeout_ns, uint32_t *from, void *data, uint64_t
//	    capacity, uint64_t *bytes, stepvan_error *error);
//
//export goMailboxNext
func goMailboxNext(number cUint64, limit cInt64, from *cUint32, data unsafe.Pointer, capacity cUint64, n *cUint64, e *cError) cCode {
	return half(e, func() error {
		m, ok := mailboxes.Get(numbers.ID(number))
		if !ok {
			return noMailbox(number)
		}
		if from == nil {
			return isNull("from")
		}
		to, err := array[byte](data, capacity, n)
		if err != nil {
			return err
		}
		ctx, cancel := limited(duration(limit))
		defer cancel()
		return m.next(ctx, func(one mail) error {
			if *n = cUint64(len(one.body)); *n > capacity {
				return tooSmall(len(one.body), capacity)
			}
			*from = cUint32(one.from)
			copy(to, one.body)
			return nil
		})
	})
}

// goMailboxNotify implements
//
//	int32_t stepvan_mailbox_notify(uint64_t mailbox, uint64_t queue, uint64_t token, stepvan_error *error);
//
//export goMailboxNotify
func goMailboxNotify(number, queue, token cUint64, e *cError) cCode {
	return half(e, func() error {
		m, ok := mailboxes.Get(numbers.ID(number))
		if !ok {
			return noMailbox(number)
		}
		changed, _ := m.look()
		return notify(queue, token, changed == nil, m.await)
	})
}

// goMailboxClose implements
//
//	int32_t stepvan_mailbox_close(uint64_t mailbox, stepvan_error *error);
//
//export goMailboxClose
func goMailboxClose(number cUint64, e *cError) cCode {
	return half(e, func() error {
		m, ok := mailboxes.Take(numbers.ID(number))
		if !ok {
			return noMailbox(number)
		}
		m.end()
		return nil
	})
}
