package shmvan

import (
	"encoding/binary"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/internal/wire"
)

// greetDial connects as a peer that has not introduced itself.
func greetDial(addr string) (io.ReadWriteCloser, error) {
	path, err := host(hostOf(os.Getuid())).path(addr)
	if err != nil {
		return nil, err
	}
	return net.DialUnix(socketType, nil, &net.UnixAddr{Name: path, Net: socketType})
}

// rawDial connects as a peer that puts bytes of its own making where a wire header is expected.
func rawDial(addr string) (io.ReadWriteCloser, error) {
	r, err := dialRaw(addr)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// raw is a connection without a van's manners: a sender of records of its own making.
type raw struct {
	van  *shmVan
	e    *endpoint
	mu   sync.Mutex
	buf  []byte
	shut bool
}

func dialRaw(addr string) (*raw, error) {
	v, err := New(Options{Placer: refuseAll{}, TwoSided: true, Dir: testDir()})
	if err != nil {
		return nil, err
	}
	r := &raw{van: v.(*shmVan)}
	path, err := r.van.host.path(addr)
	if err != nil {
		return nil, err
	}
	c, err := net.DialUnix(socketType, nil, &net.UnixAddr{Name: path, Net: socketType})
	if err != nil {
		return nil, err
	}
	r.e, err = r.van.handshake(r.van.ctx, c, true)
	return r, err
}

// Read takes what the receiver sends for granted, and returns io.EOF when the connection is over.
func (r *raw) Read([]byte) (int, error) {
	for {
		r.mu.Lock()
		over := r.shut || r.e.conn.peerWords.closed.Load() != 0
		if !over {
			for {
				rec, ok, err := r.e.receiver.in.next()
				if err != nil || !ok {
					break
				}
				r.e.receiver.in.advance(&rec, false)
			}
			r.e.receiver.in.report()
		}
		fd := r.e.conn.sock
		r.mu.Unlock()
		if over {
			return 0, io.EOF
		}
		if n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}, 1); n > 0 {
			return 0, io.EOF
		}
	}
}

// Write makes a record of each message that is whole, and of what can never become one.
func (r *raw) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.buf = append(r.buf, p...)
	for len(r.buf) >= 6 {
		head, payload, ok := cut(r.buf)
		if !ok {
			return len(p), nil
		}
		if err := r.record(r.buf[:head], r.buf[head:head+payload]); err != nil {
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

func (r *raw) record(head, payload []byte) error {
	at := recBody + (len(head)+7)&^7
	for {
		if r.shut || r.e.conn.peerWords.closed.Load() != 0 {
			return io.ErrClosedPipe
		}
		rec, err := r.e.sender.out.begin(align(at + len(payload)))
		if err != nil {
			return err
		}
		if rec == nil {
			time.Sleep(time.Millisecond)
			continue
		}
		writeRecord(rec, len(head), 0, int64(len(payload)))
		copy(rec[recBody:], head)
		copy(rec[at:], payload)
		r.e.sender.out.publish(len(rec), kindInline, 0)
		r.e.conn.wakeIfAsleep()
		return nil
	}
}

func (r *raw) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.shut {
		r.shut = true
		r.e.discard()
		return r.van.Close()
	}
	return nil
}
