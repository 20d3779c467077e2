package vantest

import (
	"encoding/binary"
	"errors"
	"io"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/wire"
)

var clause07 = Clause{Number: 7, Name: "a_bad_peer_costs_its_own_connection", cases: append([]testCase{
	{name: "a good raw peer byte by byte", run: drip},
	{name: "garbage instead of the greeting", run: badGreeting, need: needGreeting},
}, attackCases()...)}

// attack is what a hostile peer writes after its greeting.
type attack struct {
	name  string
	bytes []byte
	close bool // closes its connection then
	sum   bool // only the checksum tells
	want  func(error) bool
}

func attackCases() []testCase {
	list := make([]testCase, 0, 32)
	for _, a := range attacks() {
		list = append(list, testCase{name: a.name, run: func(p *probe) { p.suffer(a) }})
	}
	return list
}

// patched is a valid message with one field overwritten, its checksum made right again.
func patched(offset int, field ...byte) []byte {
	m := rawMessage(1, 40, 100)
	copy(m[offset:], field)
	reseal(m, 40)
	return m
}

func le64(v uint64) []byte { return binary.LittleEndian.AppendUint64(nil, v) }
func le32(v uint32) []byte { return binary.LittleEndian.AppendUint32(nil, v) }

// Offsets in the wire header. reseal proves them: a wrong offset makes a message that does not attack.
const (
	atMagic   = 0
	atVersion = 4
	atKind    = 6
	atPushes  = 68
	atPulls   = 72
	atMeta    = 76
	atPayload = 80
	atTotal   = 88
	atOffset  = 96
)

func attacks() []attack {
	whole := rawMessage(1, 40, 100)
	flipped := func(at int) []byte {
		m := rawMessage(1, 40, 100)
		m[at] ^= 1
		return m
	}
	pieces := []attack{
		{name: "noise", bytes: noise[:4096], want: isProtocol},
		{name: "zeros", bytes: make([]byte, 4096), want: isProtocol},
		{name: "another magic", bytes: patched(atMagic, 'H', 'T', 'T', 'P'), want: isProtocol},
		{name: "another version", bytes: patched(atVersion, wire.Version+1, 0), want: isVersion},
		{name: "version zero", bytes: patched(atVersion, 0, 0), want: isVersion},
		{name: "kind zero", bytes: patched(atKind, 0), want: isProtocol},
		{name: "unknown kind", bytes: patched(atKind, 200), want: isProtocol},
		{name: "giant meta", bytes: patched(atMeta, le32(1<<32-1)...), want: isProtocol},
		{name: "too many pushes", bytes: patched(atPushes, le32(1<<31)...), want: isProtocol},
		{name: "too many pulls", bytes: patched(atPulls, le32(1<<31)...), want: isProtocol},
		{name: "giant message", bytes: patched(atTotal, le64(1<<63)...), want: isProtocol},
		{name: "payload larger than its message", bytes: patched(atPayload, le64(101)...), want: isProtocol},
		{name: "negative payload", bytes: patched(atPayload, le64(1<<64-1)...), want: isProtocol},
		{name: "piece outside its message", bytes: patched(atOffset, le64(1)...), want: isProtocol},
		{name: "offset that wraps", bytes: patched(atOffset, le64(1<<64-50)...), want: isProtocol},
		{name: "header bit flipped", bytes: flipped(30), sum: true, want: isProtocol},
		{name: "checksum bit flipped", bytes: flipped(127), sum: true, want: isProtocol},
		{name: "meta bit flipped", bytes: flipped(wire.HeaderSize + 20), sum: true, want: isProtocol},
		{name: "closes at once", bytes: nil, close: true, want: isGone},
		{name: "closes in the header", bytes: whole[:77], close: true, want: isGone},
		{name: "closes in the meta", bytes: whole[:wire.HeaderSize+7], close: true, want: isGone},
		{name: "closes in the payload", bytes: whole[:wire.HeaderSize+40+99], close: true, want: isGone},
	}
	for _, n := range []int{1, 3} { // the same behind good messages
		bad := rawMessage(uint64(n+1), 40, 100)
		bad[atMagic] ^= 1
		var b []byte
		for i := range n {
			b = append(b, rawMessage(uint64(i+1), 40, 5000*i)...)
		}
		pieces = append(pieces, attack{name: "behind good messages", bytes: append(b, bad...), want: isProtocol})
	}
	return pieces
}

func isProtocol(err error) bool {
	var pe *stepvan.ProtocolError
	return errors.As(err, &pe)
}

func isVersion(err error) bool {
	var ve *wire.VersionError
	return errors.As(err, &ve) && ve.Own == wire.Version && ve.Peer != wire.Version
}

func isGone(err error) bool { return errors.Is(err, stepvan.ErrPeerLost) || isProtocol(err) }

// rawMessage is a valid message as it is on the wire.
func rawMessage(sequence uint64, meta, payload int) []byte {
	const salt = 999
	b := encode(wire.Header{Kind: wire.KindData, Sequence: sequence, Request: salt, Payload: uint64(payload), Total: uint64(payload)}, meta)
	at := len(b)
	b = append(b, make([]byte, payload)...)
	payloadOf(salt, sequence).fill(b[at:])
	return b
}

// raw connects to b as a peer that only pretends to be one.
func (p *probe) raw(b *node, dial func(string) (io.ReadWriteCloser, error)) *rawPeer {
	c, err := dial(b.listen())
	p.must(err, "dial raw")
	r := &rawPeer{ReadWriteCloser: c, ended: make(chan struct{})}
	p.atEnd = append(p.atEnd, func() { _ = c.Close() })
	p.spawn(func() {
		defer close(r.ended)
		_, _ = io.Copy(io.Discard, c)
	})
	return r
}

type rawPeer struct {
	io.ReadWriteCloser
	ended chan struct{} // reading has ended
}

func (r *rawPeer) gone() bool {
	select {
	case <-r.ended:
		return true
	default:
		return false
	}
}

// suffer lets a hostile peer have its way with a van that has a good peer too.
func (p *probe) suffer(a attack) {
	x, y, victim, r := p.besieged()
	if a.sum && x.n.van.Caps().Sound {
		victim.endangered()
		p.must(r.Close(), "close the raw connection")
		return // what damages messages there can make the checksum right as well
	}
	victim.endangered()
	p.call("a hostile Write to return", func() {
		_, _ = r.Write(a.bytes)
		if a.close {
			_ = r.Close()
		}
	})
	p.until("EventLost of the hostile peer", func() bool { return victim.count().lost })
	got := victim.count().reason
	p.want(a.want(got), "EventLost says %q", got)
	p.until("the end of the hostile peer's connection", r.gone)
	x.run(y, p.mix(20, 100*kib)...)
	y.run(x, p.mix(20, 100*kib)...)
	p.quiet()
}

// besieged makes a van with a good and a raw connection.
func (p *probe) besieged() (x, y, victim *side, r *rawPeer) {
	a, b := p.pair()
	x, y = p.connect(a, b)
	r = p.raw(b, p.f.RawDial)
	p.until("EventAccepted of a raw peer", func() bool { victim = b.claim(); return victim != nil })
	x.run(y, p.mix(5, 10*kib)...)
	return x, y, victim, r
}

func drip(p *probe) {
	x, y, victim, r := p.besieged()
	var b []byte
	for i := range uint64(3) {
		b = append(b, rawMessage(i+1, 40*int(i), 150*int(i))...)
	}
	for i := range b {
		p.call("Write of one byte", func() {
			_, err := r.Write(b[i : i+1])
			p.must(err, "write one byte")
		})
	}
	p.until("messages that came byte by byte", func() bool { return victim.count().delivered == 3 })
	x.run(y, p.mix(20, 100*kib)...)
	victim.endangered()
	p.must(r.Close(), "close the raw connection")
	p.until("EventLost of the raw peer", func() bool { return victim.count().lost })
}

func badGreeting(p *probe) {
	// The case closes the connection itself after a greeting that is too short to be judged.
	for _, g := range [][]byte{nil, {0}, noise[:100], make([]byte, 4096), noise} {
		a, b := p.pair()
		x, y := p.connect(a, b)
		b.mu.Lock()
		b.wild = true
		b.mu.Unlock()
		r := p.raw(b, p.f.GreetDial)
		p.call("a hostile Write to return", func() { _, _ = r.Write(g) })
		if len(g) <= 100 {
			p.must(r.Close(), "close the raw connection")
		}
		p.until("the end of the hostile peer's connection", r.gone)
		x.run(y, p.mix(10, 10*kib)...)
	}
}
