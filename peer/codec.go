package peer

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/text"
)

// op says what a message between peers is.
type op uint8

// The messages. Header.Request names what a message is about by the number that its receiver has given it, except in
// opOffer and opPropose, which bring the number of their sender.
const (
	opTell     op = 1 + iota // a transfer with its elements
	opTaken                  // how many of those have found their receive
	opOffer                  // a transfer whose elements follow
	opAccept                 // an offered transfer has found its receive: the elements may come
	opRefuse                 // an offered transfer does not fit its receive
	opChunk                  // a chunk of the elements
	opWritten                // the sender has written all that it writes
	opDone                   // the receiver has read all that it reads
	opFail                   // the sender of this message has given up
	opQuiet                  // the sender of this message touches nothing any more, after opFail
	opOpen                   // a run: the sources hold still
	opReady                  // a run: the destinations may be written
	opAttach                 // a peer wants to use a window, and brings the number by which it knows the answer
	opAttached               // it may, and what the window is
	opDetach                 // it may not
	opRevoke                 // the window is closed
	opReleased               // the window is not reached any more, after opRevoke
	opGet                    // elements of a window are to come
	opPut                    // elements for a window are to go
	opServe                  // they may go
	opNote                   // the note of a Put, after its elements
	opMail                   // a small message for a listener
	opLetter                 // bytes of any size, for what this package agrees on
	opPull                   // elements that the receiver is to merge are to come
	opPiece                  // those elements
	opRead                   // how much mail was read
)

// decoder reads the fields of a message. After an error it returns zeros.
type decoder struct {
	rest []byte
	size int
	err  error
}

func decode(b []byte) decoder { return decoder{rest: b, size: len(b)} }

// fail notes what is wrong with the message.
func (d *decoder) fail(field, format string, args ...any) {
	if d.err == nil {
		d.err = errs.Protocol(field, d.size-len(d.rest), format, args...)
		d.rest = nil
	}
}

// take returns the next n bytes.
func (d *decoder) take(n int) []byte {
	if d.err != nil || n > len(d.rest) {
		d.fail("message", "cut off: %d bytes are left, want %d", len(d.rest), n)
		return nil
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) u8() uint8 {
	if b := d.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) u32() uint32 {
	if b := d.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (d *decoder) u64() uint64 {
	if b := d.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.rest)
	if d.err != nil || n <= 0 {
		d.fail("message", "a number is cut off or too large")
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

// bytes reads bytes with their number before them. They are part of the message.
func (d *decoder) bytes() []byte {
	n := d.uvarint()
	if n > uint64(len(d.rest)) {
		d.fail("message", "cut off: %d bytes are left, want %d", len(d.rest), n)
		return nil
	}
	return d.take(int(n))
}

// text reads a text of at most most bytes.
func (d *decoder) text(most int) string {
	n := d.uvarint()
	if n > uint64(most) {
		d.fail("text", "%d bytes, limit %d", n, most)
		return ""
	}
	return string(d.take(int(n)))
}

// reason reads what appendReason has written, as the error of a peer.
func (d *decoder) reason() error {
	kind, why := d.u8(), text.Line(d.text(maxText), maxText)
	switch kind {
	case reasonStale:
		return fmt.Errorf("%w: %s: %w", stepvan.ErrRemote, why, stepvan.ErrStale)
	case reasonLost:
		return fmt.Errorf("%w: %s: %w", stepvan.ErrRemote, why, stepvan.ErrPeerLost)
	}
	return fmt.Errorf("%w: %s", stepvan.ErrRemote, why)
}

// Kinds of reasons, for errors.Is at the other peer.
const (
	reasonOther = iota
	reasonStale // what the other peer names is gone
	reasonLost  // a peer died or left, which may be the one that says so
)

// appendReason encodes why this peer refuses or gives up something.
func appendReason(b []byte, err error) []byte {
	kind := byte(reasonOther)
	switch {
	case errors.Is(err, stepvan.ErrStale):
		kind = reasonStale
	case errors.Is(err, stepvan.ErrPeerLost), errors.Is(err, errClosed):
		kind = reasonLost
	}
	return appendText(append(b, kind), err.Error(), maxText)
}

// maxText bounds the text of an error that a peer tells.
const maxText = 1 << 10

// end reports what was wrong, also bytes that are left.
func (d *decoder) end() error {
	if d.err == nil && len(d.rest) > 0 {
		d.fail("message", "%d bytes too many", len(d.rest))
	}
	return d.err
}

// appendText is the inverse of decoder.text. A text that is too long is cut.
func appendText(b []byte, s string, most int) []byte {
	s = s[:min(len(s), most)]
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}
