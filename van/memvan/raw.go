package memvan

import (
	"errors"
	"io"
	"sync"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

// DialRaw connects to addr as a peer that writes bytes of its own making, to test
// how a node bears them. The receiver takes what is written for wire messages. Write blocks while the
// receiver does not poll. Read discards what the receiver sends and returns
// io.EOF when the connection is over. Read and Write may be called concurrently.
func (net *Network) DialRaw(addr string) (io.ReadWriteCloser, error) {
	r := &raw{rung: true}
	r.changed.L = &r.mu
	v, err := New(net, Options{Placer: r, Wake: r.wake})
	if err != nil {
		return nil, err
	}
	r.van = v.(*memVan)
	net.mu.Lock()
	r.ep = net.tryConnect(r.van, addr)
	net.mu.Unlock()
	if r.ep == nil {
		_ = v.Close()
		return nil, &stepvan.OpError{Op: "dial", Van: vanName, Peer: addr, Err: errs.Invalid("nobody listens there")}
	}
	r.ep.announce()
	return r, nil
}

// raw is a connection without a van's manners.
type raw struct {
	van *memVan
	ep  *endpoint
	buf []byte // written, not yet a message; Write's own

	mu      sync.Mutex
	changed sync.Cond
	rung    bool // polling may find something
	polling bool
	polls   int
	over    bool
	ops     van.OpID
}

// Place implements van.Placer: what the receiver sends has no place here.
func (r *raw) Place(_ van.Endpoint, _ *wire.Header, _ []byte, dst [][]byte) ([][]byte, error) {
	return dst, stepvan.ErrNotSupported
}

func (r *raw) wake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rung = true
	r.changed.Broadcast()
}

// drain polls until nothing is left and the van is armed, unless somebody does so already. Called with
// mu held, which it gives up while it polls.
func (r *raw) drain() {
	if r.polling {
		return
	}
	r.polling = true
	var events [16]van.Event
	for r.rung && !r.over {
		r.rung = false
		r.mu.Unlock()
		n := r.van.Poll(events[:], true)
		armed := n == 0 && r.van.Arm()
		r.mu.Lock()
		r.rung = r.rung || !armed
		r.note(events[:n])
		r.polls++
		r.changed.Broadcast()
	}
	r.polling = false
}

func (r *raw) note(events []van.Event) {
	for _, ev := range events {
		switch ev.Kind {
		case van.EventMessage:
			s := ev.Delivery
			r.mu.Unlock()
			s.Release()
			r.mu.Lock()
		case van.EventLost:
			r.over = true
		}
	}
}

// Read returns io.EOF when the connection is over.
func (r *raw) Read([]byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.drain(); !r.over; r.drain() {
		r.changed.Wait()
	}
	return 0, io.EOF
}

// Write sends what is a message together with what was written before.
func (r *raw) Write(p []byte) (int, error) {
	r.buf = append(r.buf, p...)
	for {
		head, payload := cut(r.buf, r.ep.peer.van.opt.Limits)
		if head == 0 {
			return len(p), nil
		}
		if err := r.send(r.buf[:head], r.buf[head:head+payload]); err != nil {
			return 0, err
		}
		r.buf = r.buf[head+payload:]
	}
}

// send queues one message as it is, checked by nobody on this side.
func (r *raw) send(head, payload []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ops++
	m := &van.Message{Op: r.ops, Head: head, Payload: [][]byte{append([]byte(nil), payload...)}}
	for {
		polls := r.polls
		r.mu.Unlock()
		err := r.ep.sendFrom(m, int64(len(payload)))
		r.mu.Lock()
		if !errors.Is(err, stepvan.ErrWouldBlock) {
			return err
		}
		for r.drain(); r.polls == polls && !r.over; r.drain() {
			r.changed.Wait()
		}
	}
}

// Close ends the connection. Idempotent, concurrent.
func (r *raw) Close() error {
	err := r.van.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	r.changed.Broadcast()
	return err
}

// cut returns the lengths of head and payload of the message at the start of b, 0
// while it is not whole. What cannot be a message is handed over as a head, for
// the receiver to judge.
func cut(b []byte, lim wire.Limits) (head, payload int) {
	if len(b) < wire.HeaderSize {
		return 0, 0
	}
	var h wire.Header
	if h.Decode(b, lim) != nil {
		return wire.HeaderSize, 0
	}
	head = wire.HeaderSize + int(h.Meta)
	if len(b) < head {
		return 0, 0
	}
	if wire.Verify(b[:wire.HeaderSize], b[wire.HeaderSize:head]) != nil {
		return head, 0
	}
	if uint64(len(b)-head) < h.Payload {
		return 0, 0
	}
	return head, int(h.Payload)
}
