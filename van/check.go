package van

import (
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/wire"
)

// Check holds m against c, and returns the bytes of its payload. It tells nothing of what the header says.
func (c *Caps) Check(m *Message) (payload int64, err error) {
	payload = Total(m.Payload) + m.Written
	switch meta := len(m.Head) - wire.HeaderSize; {
	case meta < 0:
		err = errs.Invalid("send: head: too short for a header (got %d bytes, want %d)", len(m.Head), wire.HeaderSize)
	case meta > c.MaxMeta:
		err = errs.Invalid("send: meta: too long for one message (got %d bytes, want at most %d)", meta, c.MaxMeta)
	case payload > c.MaxPayload:
		err = errs.Invalid("send: payload: too long for one message (got %d bytes, want at most %d)", payload, c.MaxPayload)
	case len(m.Payload) > c.MaxSegments:
		err = errs.Invalid("send: payload: too many segments for one message (got %d, want at most %d)", len(m.Payload), c.MaxSegments)
	case len(m.Target) > 0 || m.Written != 0 || m.Spare != nil:
		err = c.checkDestination(m, payload)
	}
	return payload, err
}

// checkDestination holds against c where the payload of m goes, or is already.
func (c *Caps) checkDestination(m *Message, payload int64) (err error) {
	switch {
	case len(m.Target) > 0 && !c.OneSided:
		err = errs.Invalid("send: targets: this van is not one-sided (got %d targets, want none)", len(m.Target))
	case len(m.Target) > 0 && len(m.Target) != len(m.Payload):
		err = errs.Invalid("send: targets: not one for each segment (got %d, want %d)", len(m.Target), len(m.Payload))
	case c.Offload && len(m.Target) > 0 && m.along() > c.InMessage:
		err = errs.Invalid("send: segments without target: too long to travel with the head (got %d bytes, want at most %d)", m.along(), c.InMessage)
	case m.Written != 0 && !c.Views:
		err = errs.Invalid("send: written bytes: this van has no views to write through (got %d bytes, want none)", m.Written)
	case m.Written < 0 || m.Written > 0 && (len(m.Payload) > 0 || m.Spare != nil):
		err = errs.Invalid("send: written bytes: they are not all of the payload (got %d bytes and %d segments, want one of them)", m.Written, len(m.Payload))
	case m.Spare != nil && int64(len(m.Spare)) < payload:
		err = errs.Invalid("send: Spare: shorter than the payload (got %d bytes, want %d)", len(m.Spare), payload)
	}
	return err
}

// along returns the bytes of the segments whose Target is zero. There is a Target for each segment.
func (m *Message) along() (n int64) {
	for i, t := range m.Target {
		if t.IsZero() {
			n += int64(len(m.Payload[i]))
		}
	}
	return n
}

// Total returns the bytes of segments.
func Total(segments [][]byte) (n int64) {
	for _, s := range segments {
		n += int64(len(s))
	}
	return n
}
