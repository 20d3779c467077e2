package stress

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/stepvan/stepvan/internal/wire"
)

// relay connects each dialling node with a listener elsewhere, frame by frame.
type relay struct {
	listener net.Listener
	to       string
	damage   *damage
	victim   string // the dialling node whose connection is damaged; "": every node's
	wg       sync.WaitGroup

	mu    sync.Mutex
	over  bool
	ends  []net.Conn
	fault error // of what was not a valid frame
}

// newRelay takes connections at l and passes them on.
func newRelay(l net.Listener, to string, d *damage, victim string) *relay {
	r := &relay{listener: l, to: to, damage: d, victim: victim}
	r.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			r.wg.Go(func() { r.join(c.(*net.TCPConn)) })
		}
	})
	return r
}

// join carries one connection both ways until both have ended.
func (r *relay) join(dialled *net.TCPConn) {
	c, err := net.Dial("tcp", r.to)
	if err != nil {
		_ = dialled.Close()
		return
	}
	listening := c.(*net.TCPConn)
	if !r.keep(dialled, listening) {
		return
	}
	s := &relayedConn{relay: r, known: make(chan struct{}), dialled: dialled, listening: listening}
	var both sync.WaitGroup
	both.Go(func() { r.note(s.carry(dialled, listening, false)) })
	both.Go(func() { r.note(s.carry(listening, dialled, true)) })
	both.Wait()
	_ = dialled.Close()
	_ = listening.Close()
}

// keep has close end connections; false when it has been called.
func (r *relay) keep(all ...net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		for _, c := range all {
			_ = c.Close()
		}
	}
	r.ends = append(r.ends, all...)
	return !r.over
}

func (r *relay) note(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fault == nil {
		r.fault = err
	}
}

// close ends all connections. It returns an error if something that came over them was not a valid frame.
func (r *relay) close() error {
	_ = r.listener.Close()
	r.mu.Lock()
	r.over = true
	for _, c := range r.ends {
		_ = c.Close()
	}
	r.mu.Unlock()
	r.wg.Wait()
	return r.fault
}

// relayedConn is one connection through a relay.
type relayedConn struct {
	relay              *relay
	dialled, listening *net.TCPConn
	known              chan struct{} // closed when the dialling node is known
	named              bool
	struck             bool // its frames are those that damage is for; once known is closed
}

// preambleSize is the number of bytes before the first frame of the dialling side.
const preambleSize = 32

// carry passes frames on in one direction. It does not report errors of connections. It ends the connection to the
// receiver as the van would see it end.
func (s *relayedConn) carry(from, to *net.TCPConn, back bool) error {
	if !back {
		defer s.know("")
	}
	defer func() { _ = to.CloseWrite() }()
	in := bufio.NewReaderSize(from, 256<<10)
	if !back {
		if _, err := io.CopyN(to, in, preambleSize); err != nil {
			return nil
		}
	}
	for {
		f, err := read(in)
		if f == nil || err != nil {
			return err
		}
		if !back {
			s.know(dialerOf(f))
		} else {
			<-s.known // the dialling side sends first
		}
		out, end := f.raw, false
		if s.struck {
			out, end = s.relay.damage.pass(f, back)
		}
		if _, err := to.Write(out); err != nil {
			_, _ = io.Copy(io.Discard, in) // the sender must not wait for a peer that has gone
			return nil
		}
		if end {
			s.sever()
			return nil
		}
	}
}

// know stores the name of the dialling node, once.
func (s *relayedConn) know(name string) {
	if s.named {
		return
	}
	s.named = true
	s.struck = s.relay.damage != nil && (s.relay.victim == "" || s.relay.victim == name)
	close(s.known)
}

// sever ends both directions.
func (s *relayedConn) sever() {
	for _, c := range []*net.TCPConn{s.dialled, s.listening} {
		if s.relay.damage.reset {
			_ = c.SetLinger(0)
		}
		_ = c.Close()
	}
}

// read takes one frame. It returns nil and no error at the end of the connection, wherever that comes.
func read(in io.Reader) (*frame, error) {
	f := &frame{raw: make([]byte, wire.HeaderSize)}
	if _, err := io.ReadFull(in, f.raw); err != nil {
		return nil, nil
	}
	if err := f.measure(f.raw); err != nil {
		return nil, fmt.Errorf("what a node sends is no frame: %w", err)
	}
	f.raw = append(f.raw, make([]byte, f.to[inPayload]-wire.HeaderSize)...)
	if _, err := io.ReadFull(in, f.raw[wire.HeaderSize:]); err != nil {
		return nil, nil
	}
	return f, wire.Verify(f.raw[:wire.HeaderSize], f.raw[wire.HeaderSize:f.to[inMeta]])
}

// dialerOf is the name in the introduction that a connection begins with.
func dialerOf(f *frame) string {
	meta := f.raw[f.from[inMeta]:f.to[inMeta]]
	if f.header.Kind != wire.KindHello || len(meta) < 20 {
		return ""
	}
	n := int(binary.LittleEndian.Uint16(meta[16:]))
	return string(meta[20:min(len(meta), 20+n)])
}
