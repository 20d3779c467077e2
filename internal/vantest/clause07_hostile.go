package vantest

import (
	"encoding/binary"
	"errors"
	"io"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/wire"
)

var clause07 = Clause{Number: 7, Name: "a_bad_peer_costs_its_own_connection", cases: append([]testCase{
	{name: "a good raw peer byte by byte", run: func(t *trial) {
		x, raw, r := t.withRawPeer()
		var b []byte
		for i := range uint64(3) {
			b = append(b, rawMessage(i+1, 40*int(i), 150*int(i))...)
		}
		for i := range b {
			t.call("Write of one byte", func() {
				_, err := r.Write(b[i : i+1])
				t.must(err, "write one byte")
			})
		}
		t.until("messages that came byte by byte", func() bool { return raw.count().delivered == 3 })
		x.deliver(t.mix(20, 100*kib)...)
		mayFail(raw)
		t.must(r.Close(), "close the raw connection")
		t.until("EventLost of the raw peer", raw.isLost)
	}},
	{name: "garbage instead of the greeting", need: needGreeting, run: func(t *trial) {
		// The case closes the connection itself after a greeting that is too short to be judged.
		for _, greeting := range [][]byte{nil, {0}, noise[:100], make([]byte, 4096), noise} {
			x, y := t.pair()
			y.n.mu.Lock()
			y.n.hostile = true
			y.n.mu.Unlock()
			r := y.n.rawPeer(t.f.GreetDial)
			r.attack(greeting, len(greeting) <= 100)
			t.until("the end of the hostile peer's connection", r.ended.Load)
			x.deliver(t.mix(10, 10*kib)...)
		}
	}},
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
		list = append(list, testCase{name: a.name, run: a.run})
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

// reseal makes the checksum of a message right for its bytes. A van then finds an attack
// by what it says and not by its checksum.
func reseal(message []byte, meta int) {
	const at = 120
	sum := xxhash.Sum64(message[:at])
	if meta > 0 {
		sum = sum*0x9E3779B185EBCA87 ^ xxhash.Sum64(message[wire.HeaderSize:wire.HeaderSize+meta])
	}
	binary.LittleEndian.PutUint64(message[at:], sum)
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
	b := append(head(salt, sequence, meta, uint64(payload)), make([]byte, payload)...)
	payloadOf(salt, sequence).fill(b[len(b)-payload:])
	return b
}

// rawPeer is a connection to a van by a peer that only pretends to be one.
type rawPeer struct {
	io.ReadWriteCloser
	t     *trial
	ended atomic.Bool // reading has ended
}

// rawPeer connects to n.
func (n *node) rawPeer(dial func(string) (io.ReadWriteCloser, error)) *rawPeer {
	c, err := dial(n.listen())
	n.t.must(err, "dial raw")
	r := &rawPeer{ReadWriteCloser: c, t: n.t}
	n.t.atEnd = append(n.t.atEnd, func() { _ = c.Close() })
	n.t.spawn(func() {
		_, _ = io.Copy(io.Discard, c)
		r.ended.Store(true)
	})
	return r
}

// withRawPeer makes a van with a good connection from x and a raw one, of which raw is the van's side.
func (t *trial) withRawPeer() (x, raw *side, r *rawPeer) {
	x, y := t.pair()
	r = y.n.rawPeer(t.f.RawDial)
	raw = y.n.accept("a raw peer")
	x.deliver(t.mix(5, 10*kib)...)
	return x, raw, r
}

// attack writes what a hostile peer writes, and perhaps closes its connection.
func (r *rawPeer) attack(bytes []byte, thenClose bool) {
	r.t.call("a hostile Write to return", func() {
		_, _ = r.Write(bytes)
		if thenClose {
			_ = r.Close()
		}
	})
}

// run attacks a van that has a good peer too.
func (a attack) run(t *trial) {
	x, raw, r := t.withRawPeer()
	mayFail(raw)
	if a.sum && x.caps.Sound {
		t.must(r.Close(), "close the raw connection")
		return // what damages messages there can make the checksum right as well
	}
	r.attack(a.bytes, a.close)
	t.until("EventLost of the hostile peer", raw.isLost)
	t.want(a.want(raw.count().reason), "EventLost says %q", raw.count().reason)
	t.until("the end of the hostile peer's connection", r.ended.Load)
	x.deliver(t.mix(20, 100*kib)...)
	x.peer.deliver(t.mix(20, 100*kib)...)
	t.quiet()
}
