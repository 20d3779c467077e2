package stress

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/internal/wire"
)

// part is where in a frame of tcpvan damage is done.
type part int

// The parts of a frame, in their order.
const (
	inHeader part = iota
	inMeta
	inPayload
	parts
)

func (p part) String() string { return [parts]string{"header", "meta", "payload"}[p] }

// damageKind is what happens to the part.
type damageKind int

// Harms.
const (
	changed damageKind = iota // some bytes get other values
	dropped                   // some bytes, or the whole frame, are left out
	doubled                   // some bytes, or the whole frame, come twice
	cut                       // the connection ends there
	damageKinds
)

func (h damageKind) String() string {
	return [damageKinds]string{"changed", "dropped", "doubled", "cut"}[h]
}

// frame is one message of a van as it goes over a connection.
type frame struct {
	header wire.Header
	raw    []byte // header, meta, padding, payload
	from   [parts]int
	to     [parts]int
}

// Padding of tcpvan: a payload above padFrom bytes begins at a multiple of padUnit.
const (
	padFrom = 64 << 10
	padUnit = 64
)

// measure finds the parts of a frame that begins with head.
func (f *frame) measure(head []byte) error {
	if err := f.header.Decode(head, wire.DefaultLimits); err != nil {
		return err
	}
	at := wire.HeaderSize + int(f.header.Meta)
	f.from[inHeader], f.to[inHeader] = 0, wire.HeaderSize
	f.from[inMeta], f.to[inMeta] = wire.HeaderSize, at
	if f.header.Payload > padFrom {
		at += -at & (padUnit - 1)
	}
	f.from[inPayload], f.to[inPayload] = at, at+int(f.header.Payload)
	return nil
}

// size is the size of a part.
func (f *frame) size(p part) int { return f.to[p] - f.from[p] }

// damage is what happens to one frame. Its plan follows from the seed alone; the bytes that it
// meets also depend on the traffic.
type damage struct {
	dice       *rand.Rand
	part       part
	damageKind damageKind
	whole      bool // the whole frame is dropped or doubled
	back       bool // the frame is one of those that the listening side sends
	nth        int  // which of the frames that have the part, from 0
	reset      bool // of cut: the connection ends with a reset

	mu    sync.Mutex
	seen  int
	done  bool
	at    time.Time   // when the frame was damaged
	late  lateness    // at that time
	frame wire.Header // of the damaged frame
	exact []int       // of a changed payload: where, from the start of the message
	least int         // of a payload that is shifted: where that begins, from the start of the message
}

func (d *damage) String() string {
	what := d.part.String()
	if d.whole {
		what = "frame"
	}
	direction := "to the listener"
	if d.back {
		direction = "from the listener"
	}
	return fmt.Sprintf("%s %s of frame %d with %s, %s", what, d.damageKind, d.nth, d.part, direction)
}

// pass takes a frame of one direction, and returns the bytes to send in its place. end says that
// nothing follows.
func (d *damage) pass(f *frame, back bool) (out []byte, end bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.done || back != d.back || f.size(d.part) == 0 {
		return f.raw, false
	}
	if d.seen++; d.seen <= d.nth {
		return f.raw, false
	}
	d.done, d.at, d.late, d.frame, d.least = true, time.Now(), lateNow(), f.header, -1
	return d.apply(f), d.damageKind == cut
}

// hit reports whether the frame has come, and when.
func (d *damage) hit() (bool, time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.done, d.at
}

// allows reports whether a byte of a message may be wrong, which it may where the damaged bytes were its own.
func (d *damage) allows(back bool, at int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.done || d.part != inPayload || back != d.back || d.whole {
		return false
	}
	if d.damageKind == changed {
		return slices.Contains(d.exact, at)
	}
	return at >= d.least && at < int(d.frame.Offset+d.frame.Payload)
}

// apply makes other bytes of a frame. mu is held.
func (d *damage) apply(f *frame) []byte {
	switch {
	case d.whole && d.damageKind == dropped:
		return nil
	case d.whole:
		return append(bytes.Clone(f.raw), f.raw...)
	}
	for {
		d.exact = d.exact[:0]
		out := d.corrupt(f)
		// Header and meta must not arrive as they were: then the damage would be that of something else.
		if head := f.to[inMeta]; d.part == inPayload || len(out) < head || !bytes.Equal(out[:head], f.raw[:head]) {
			return out
		}
	}
}

// corrupt damages a part.
func (d *damage) corrupt(f *frame) []byte {
	from, size := f.from[d.part], f.size(d.part)
	a := from + d.dice.IntN(size)
	b := min(f.to[d.part], a+1+d.dice.IntN(size))
	if d.dice.IntN(2) == 0 {
		b = min(f.to[d.part], a+1+d.dice.IntN(16))
	}
	d.least = int(f.header.Offset) + a - f.from[inPayload]
	switch d.damageKind {
	case changed:
		out := bytes.Clone(f.raw)
		for _, at := range d.dice.Perm(size)[:min(size, 1+d.dice.IntN(4))] {
			out[from+at] ^= byte(1 + d.dice.IntN(255))
			d.exact = append(d.exact, int(f.header.Offset)+at)
		}
		return out
	case dropped:
		return append(bytes.Clone(f.raw[:a]), f.raw[b:]...)
	case doubled:
		d.least += b - a
		return append(bytes.Clone(f.raw[:b]), f.raw[a:]...)
	}
	return bytes.Clone(f.raw[:a])
}

// A relay knows the frames that pass: the van puts padding where the test thinks, and the link its name.
func TestFramesOfTheVan(t *testing.T) {
	var f frame
	head := make([]byte, wire.HeaderSize)
	for _, tc := range []struct {
		meta    int
		payload uint64
		from    int
	}{{0, 0, 128}, {10, 64 << 10, 138}, {10, 64<<10 + 1, 192}, {64, 1 << 20, 192}} {
		h := wire.Header{Kind: wire.KindData, Payload: tc.payload, Total: tc.payload}
		h.Encode(head, make([]byte, tc.meta))
		require.NoError(t, f.measure(head))
		require.Equal(t, tc.from, f.from[inPayload])
		require.Equal(t, int(tc.payload), f.size(inPayload))
		require.Equal(t, tc.meta, f.size(inMeta))
	}
	require.Error(t, f.measure(make([]byte, wire.HeaderSize)))
}

// Damage stays within its part, and what it says of the payload is so.
func TestDamage(t *testing.T) {
	meta, payload := bytes.Repeat([]byte{1, 0, 2}, 20), make([]byte, 300)
	h := wire.Header{Kind: wire.KindData, Payload: 300, Total: 1000, Offset: 500}
	for seed := range uint64(2000) {
		d := &damage{dice: rand.New(rand.NewPCG(seed, 0)), part: part(seed % uint64(parts)), damageKind: damageKind(seed / 3 % uint64(damageKinds))}
		_, _ = rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)}).Read(payload)
		f := frame{raw: make([]byte, wire.HeaderSize)}
		h.Encode(f.raw, meta)
		require.NoError(t, f.measure(f.raw))
		f.raw = append(append(f.raw, meta...), payload...)
		was := bytes.Clone(f.raw)
		out, end := d.pass(&f, false)
		require.Equal(t, was, f.raw)
		require.Equal(t, d.damageKind == cut, end)
		require.NotEqual(t, was, out)
		require.Equal(t, was[:f.from[d.part]], out[:f.from[d.part]], "what goes before is whole")
		if d.damageKind == changed {
			require.Equal(t, was[f.to[d.part]:], out[f.to[d.part]:], "what follows is whole")
		}
		for i := range payload {
			same := f.from[inPayload]+i < len(out) && out[f.from[inPayload]+i] == payload[i]
			if d.part == inPayload && !same {
				require.True(t, d.allows(false, 500+i), "%v: byte %d", d, i)
			}
		}
		require.False(t, d.allows(true, 600))
		require.False(t, d.allows(false, 499))
		require.False(t, d.allows(false, 800))
		again, _ := d.pass(&f, false)
		require.Equal(t, was, again, "one frame only")
	}
}
