package vantest

import (
	"bytes"
	"math/rand/v2"
	"slices"
)

const (
	junk   = 0xDD // what a source is overwritten with when it is the caller's again
	poison = 0xEE // what a destination holds before the payload
	canary = 0xC5 // what surrounds a destination
)

// noise is where all payload comes from. Its length is prime, so that payload
// shifted by pages, segments or buffers differs.
var noise = func() []byte {
	b := make([]byte, 65521)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}()

// stream names the bytes of one payload or meta.
type stream uint64

func payloadOf(salt, sequence uint64) stream { return stream(salt*104729 + sequence*7919) }
func metaOf(salt, sequence uint64) stream    { return payloadOf(salt, sequence) + 31337 }

// fill writes the stream into the segments.
func (s stream) fill(segments ...[]byte) {
	at := int(uint64(s) % uint64(len(noise)))
	for _, b := range segments {
		for len(b) > 0 {
			n := copy(b, noise[at:])
			b = b[n:]
			at = (at + n) % len(noise)
		}
	}
}

// differs returns where the segments differ from the stream, -1 when they do not.
func (s stream) differs(segments ...[]byte) int {
	at, offset := int(uint64(s)%uint64(len(noise))), 0
	for _, b := range segments {
		for len(b) > 0 {
			n := min(len(b), len(noise)-at)
			if !bytes.Equal(b[:n], noise[at:at+n]) {
				for i := range n {
					if b[i] != noise[at+i] {
						return offset + i
					}
				}
			}
			b = b[n:]
			offset += n
			at = (at + n) % len(noise)
		}
	}
	return -1
}

// paint fills the segments with c.
func paint(c byte, segments ...[]byte) {
	for _, b := range segments {
		for n := copy(b, []byte{c}); n < len(b); n *= 2 {
			copy(b[n:], b[:n])
		}
	}
}

// unpainted returns where b is not c, -1 when all of it is.
func unpainted(c byte, b []byte) int {
	if len(b) > 0 && b[0] == c && bytes.Equal(b[1:], b[:len(b)-1]) {
		return -1 // one comparison: the race detector looks at each access
	}
	return slices.IndexFunc(b, func(x byte) bool { return x != c })
}

// cutUp cuts b into n segments of odd lengths, some of them empty.
func cutUp(b []byte, n int, r *rand.Rand) [][]byte {
	var segments [][]byte
	for ; n > 1; n-- {
		k := 0
		if len(b) > 0 {
			k = min(len(b), r.IntN(2*len(b)/n+1)|1)
		}
		if r.IntN(8) == 0 {
			k = 0
		}
		segments = append(segments, b[:k:k])
		b = b[k:]
	}
	return append(segments, b)
}
