package particle

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/stepvan/stepvan"
)

// seals are what a pair of loops with a key make and check seals with. A seal proves that a loop with the key has made
// a pickled value, for this loop, and that nobody sends it twice.
type seals struct {
	out, in   []byte // a key for each direction; nil without Options.Key
	sent, got uint64 // the last numbers of sealed frames in each direction
}

// prepare makes the keys once both loops have told their nonces.
func (s *seals) prepare(key []byte, mine, theirs *hello, me, other stepvan.Rank) {
	if key == nil {
		return
	}
	s.out, s.in = sealKey(key, mine, theirs, me, other), sealKey(key, theirs, mine, other, me)
}

// sealKey is the key for what one loop sends to another.
func sealKey(key []byte, from, to *hello, sender, receiver stepvan.Rank) []byte {
	h := hmac.New(sha256.New, key)
	_, _ = h.Write([]byte("stepvan particles"))
	_, _ = h.Write(from.nonce[:])
	_, _ = h.Write(to.nonce[:])
	_, _ = h.Write(binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, uint32(sender)), uint32(receiver)))
	return h.Sum(nil)
}

// sum is the seal of a frame and of the data that travel apart from it.
func sum(key, body, apart []byte) []byte {
	h := hmac.New(sha256.New, key)
	_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(body))))
	_, _ = h.Write(body)
	_, _ = h.Write(apart)
	return h.Sum(nil)
}

// seal ends a frame with its number and its seal.
func (s *seals) seal(body []byte, p *content) []byte {
	s.sent++
	body = binary.LittleEndian.AppendUint64(body, s.sent)
	var apart []byte
	if body[1]&flagApart != 0 {
		apart = p.data
	}
	return append(body, sum(s.out, body, apart)...)
}

// next reports whether a sealed frame has not come before.
func (s *seals) next(f *frame) bool {
	n := binary.LittleEndian.Uint64(f.sealed[len(f.sealed)-numberBytes:])
	if n <= s.got {
		return false
	}
	s.got = n
	return true
}

// allow says why a frame cannot go to another loop, or nil. It marks a frame that needs a seal.
func (r *remote) allow(f *frame) error {
	if f.flags&flagPickled == 0 {
		return nil
	}
	switch {
	case !r.loop.opt.AllowPickled:
		return errPickledHere("send")
	case !r.hello.pickled:
		return &stepvan.OpError{Op: "send", Peer: r.name, Err: fmt.Errorf(
			"the value is pickled, and the loop there does not allow it: open it with AllowPickled: %w", stepvan.ErrNotSupported)}
	case r.loop.lib.Private(r.rank):
		return nil
	case r.seals.out == nil:
		return &stepvan.OpError{Op: "send", Peer: r.name, Err: fmt.Errorf(
			"the value is pickled, and the loop is on another machine or of another user: give all loops the same Key: %w", stepvan.ErrNotSupported)}
	}
	f.flags |= flagSealed
	return nil
}

// refusal is how a loop answers a pickled value that it does not allow. Nobody has read it.
func refusal(name string) error {
	return fail(codeRefused, "the loop of %s has refused a pickled value, which nobody has read: allow it at both loops, within one machine and user or with the same Key", name)
}

// check refuses a pickled frame that is not allowed here. data is the data of the value.
func (r *remote) check(f *frame, data []byte) error {
	l := r.loop
	switch {
	case !l.opt.AllowPickled:
	case l.lib.Private(r.rank):
		return nil
	case r.seals.in != nil && f.seal != nil && hmac.Equal(f.seal, sum(r.seals.in, f.sealed, apartOf(f, data))):
		return nil
	}
	return refusal(l.name)
}

// checkAtOnce is check for a frame whose data are not on their way.
func (r *remote) checkAtOnce(f *frame) error {
	if f.flags&flagSealed != 0 && !r.seals.next(f) {
		return refusal(r.loop.name)
	}
	if f.flags&flagPickled == 0 || f.flags&flagApart != 0 && f.flags&flagSealed != 0 {
		return nil
	}
	return r.check(f, nil)
}

func apartOf(f *frame, data []byte) []byte {
	if f.flags&flagApart != 0 {
		return data
	}
	return nil
}

func errPickledHere(op string) error {
	return fmt.Errorf("%s: value: it is pickled, and this loop does not allow it: open it with AllowPickled: %w", op, stepvan.ErrNotSupported)
}

func newNonce() (nonce [16]byte) {
	_, _ = rand.Read(nonce[:])
	return nonce
}
