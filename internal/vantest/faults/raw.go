package faults

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

// RawDial returns what a vantest.Factory needs to dial as a hostile peer: the bytes that are written become wire
// messages of their maker's choice. It is for vans of messages, whose Send takes any head. Over vans of bytes
// a test dials a socket instead.
//
// Somebody must Read, which discards what the receiver sends and returns io.EOF when the connection is over. Write
// blocks while the receiver does not poll. Read, Write and Close may be called concurrently.
func RawDial(maker Maker) func(addr string) (io.ReadWriteCloser, error) {
	return func(addr string) (io.ReadWriteCloser, error) {
		r := &rawPeer{wakeUp: make(chan struct{}, 1), polled: make(chan struct{}, 1)}
		v, err := maker(r, func() { ring(r.wakeUp) })
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		ep, err := v.Dial(ctx, addr)
		if err != nil {
			return nil, errors.Join(err, v.Close())
		}
		r.van, r.ep = v, ep
		return r, nil
	}
}

// rawPeer is a connection without a van's manners.
type rawPeer struct {
	van    van.Van
	ep     van.Endpoint
	wakeUp chan struct{} // the van has something to poll
	polled chan struct{} // there may be room for a message
	closed atomic.Bool
	buf    []byte // written, not yet a message; Write's own
}

// ring makes sure that c can be received from.
func ring(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Place implements van.Placer: what the receiver sends has no place here.
func (r *rawPeer) Place(_ van.Endpoint, _ *wire.Header, _ []byte, dst [][]byte) ([][]byte, error) {
	return dst, stepvan.ErrNotSupported
}

// Read returns io.EOF when the connection is over.
func (r *rawPeer) Read([]byte) (int, error) {
	defer ring(r.polled)
	var events [16]van.Event
	for !r.closed.Load() {
		n := r.van.Poll(events[:], true)
		for _, ev := range events[:n] {
			switch ev.Kind {
			case van.EventMessage:
				ev.Delivery.Release()
			case van.EventLost:
				return 0, io.EOF
			}
		}
		ring(r.polled)
		if n == 0 && r.van.Arm() {
			<-r.wakeUp
		}
	}
	return 0, io.EOF
}

// Write sends what is a message together with what was written before.
func (r *rawPeer) Write(p []byte) (int, error) {
	r.buf = append(r.buf, p...)
	for {
		head, payload := cut(r.buf)
		if head == 0 {
			return len(p), nil
		}
		m := &van.Message{Head: r.buf[:head:head]}
		if payload > 0 {
			m.Payload = [][]byte{r.buf[head : head+payload]}
		}
		err := r.ep.Send(m)
		for ; errors.Is(err, stepvan.ErrWouldBlock); err = r.ep.Send(m) {
			<-r.polled
		}
		if err != nil {
			return 0, err
		}
		r.buf = append([]byte(nil), r.buf[head+payload:]...) // the van has the rest
	}
}

// Close ends the connection. Idempotent, concurrent.
func (r *rawPeer) Close() error {
	r.closed.Store(true)
	err := r.van.Close()
	ring(r.wakeUp)
	ring(r.polled)
	return err
}

// cut returns the lengths of head and payload of the message at the start of b, 0 while it is not whole. What cannot be
// a header is handed over as one, for the receiver to judge.
func cut(b []byte) (head, payload int) {
	if len(b) < wire.HeaderSize {
		return 0, 0
	}
	var h wire.Header
	if h.Decode(b, wire.DefaultLimits) != nil {
		return wire.HeaderSize, 0
	}
	head = wire.HeaderSize + int(h.Meta)
	if len(b) < head || uint64(len(b)-head) < h.Payload {
		return 0, 0
	}
	return head, int(h.Payload)
}
