package rdma

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/stepvan/stepvan/internal/verbs"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

// raw is a connection without a van's manners: it puts bytes of its own making where a wire header is expected.
type raw struct {
	van        *rdmaVan
	e          *endpoint
	introduced bool
	mu         sync.Mutex
	buf        []byte
	closed     bool
}

// refuseAll is a Placer that refuses every payload.
type refuseAll struct{}

func (refuseAll) Place(_ van.Endpoint, _ *wire.Header, _ []byte, dst [][]byte) ([][]byte, error) {
	return dst, errors.New("no room")
}

// dialRaw connects to addr. Without a hello, the first thing that is written stands in its place.
func dialRaw(o Options, addr string, hello bool) (*raw, error) {
	o.Placer = refuseAll{}
	v, err := New(o)
	if err != nil {
		return nil, err
	}
	r := &raw{van: v.(*rdmaVan), introduced: hello}
	d, err := r.van.newDialing(greeting{paths: 1}, nil)
	if err != nil {
		return nil, err
	}
	defer d.close()
	a, err := parseAddress(addr)
	if err != nil {
		return nil, err
	}
	to, err := a.lookup(context.Background())
	if err != nil {
		return nil, err
	}
	if err := d.connect(route{o.Source, to}, addr); err != nil {
		d.close()
		return nil, errors.Join(err, v.Close())
	}
	r.e = d.rail.e
	if hello {
		r.e.rails.first().sayHello()
	}
	return r, nil
}

// Read polls, and returns io.EOF when the connection is over.
func (r *raw) Read([]byte) (int, error) {
	events := make([]van.Event, 16)
	for {
		n := r.van.Poll(events, true)
		for _, ev := range events[:n] {
			if ev.Delivery != nil {
				ev.Delivery.Release()
			}
			if ev.Kind == van.EventLost {
				return 0, io.EOF
			}
		}
		r.mu.Lock()
		closed := r.closed
		r.mu.Unlock()
		if closed {
			return 0, io.EOF
		}
		if n == 0 {
			time.Sleep(100 * time.Microsecond)
		}
	}
}

// Write makes a message of each one that is whole, and of what can never become one.
func (r *raw) Write(p []byte) (int, error) {
	if !r.introduced {
		return len(p), r.post(p[:min(len(p), defaultSlotBytes)])
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.buf = append(r.buf, p...)
	for len(r.buf) >= 6 {
		head, payload, ok := cut(r.buf)
		if !ok {
			return len(p), nil
		}
		if err := r.send(append([]byte(nil), r.buf[:head]...), append([]byte(nil), r.buf[head:head+payload]...)); err != nil {
			return 0, err
		}
		r.buf = r.buf[head+payload:]
	}
	return len(p), nil
}

// cut finds the first message in b. Bytes that do not begin with a header are one by themselves.
func cut(b []byte) (head, payload int, ok bool) {
	if binary.LittleEndian.Uint32(b) != wire.Magic || binary.LittleEndian.Uint16(b[4:]) != wire.Version {
		return min(len(b), 4096), 0, true
	}
	if len(b) < wire.HeaderSize {
		return 0, 0, false
	}
	var h wire.Header
	if h.Decode(b, wire.DefaultLimits) != nil {
		return min(len(b), 4096), 0, true
	}
	head = wire.HeaderSize + int(h.Meta)
	if len(b) < head+int(h.Payload) {
		return 0, 0, false
	}
	return head, int(h.Payload), true
}

// send sends a message, whatever its head says.
func (r *raw) send(head, payload []byte) error {
	m := &van.Message{Op: 1, Head: head, Payload: [][]byte{payload}}
	for {
		r.e.mu.Lock()
		if r.e.state.Load()&(failed|closed) != 0 {
			r.e.mu.Unlock()
			return io.ErrClosedPipe
		}
		err := r.e.out.send(m)
		r.e.mu.Unlock()
		if err == nil {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
}

// post sends bytes as they are, whether or not there is credit. They may be longer than a buffer.
func (r *raw) post(b []byte) error {
	q := &r.e.rails.first().queue
	i := r.buffer()
	r.e.mu.Lock()
	defer r.e.mu.Unlock()
	long := r.e.rails.first().conn.memory.Bytes()[pageBytes+(r.e.rails.first().conn.receives+i)*r.e.rails.first().conn.slotBytes:]
	n := copy(long, b)
	number, signaled := q.add(verbs.Request{Op: verbs.OpSend}, true, q.segment(long[:n]))
	q.buffers.use(i, number, signaled)
	q.post()
	return nil
}

// buffer waits for a buffer.
func (r *raw) buffer() int {
	for {
		r.e.mu.Lock()
		i := r.e.rails.first().queue.takeBuffer()
		r.e.mu.Unlock()
		if i >= 0 {
			return i
		}
		r.van.poller.takeCompletions()
	}
}

func (r *raw) Close() error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	return r.van.Close()
}
