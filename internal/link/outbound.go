package link

import (
	"math"

	"github.com/stepvan/stepvan/internal/bulk"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

// Outbound is one message to send. The caller fills it, and owns it again after Completer.Done. It may then use it for
// the next message. It must not be copied or touched in between.
type Outbound struct {
	Channel    wire.Channel
	Op         uint8 // meaning is the channel's
	Flags      wire.Flags
	Timed      bool // Posted is asked for, which costs a clock read
	Request    uint64
	Generation uint32
	Pushes     uint32
	Pulls      uint32
	Meta       []byte   // borrowed until Done
	Payload    [][]byte // borrowed until Done
	// Targets name, for each segment of Payload, the place in the peer's grants to which it is written
	// ([Session.OneSided]). Inbound.Written tells the peer how much. Empty: the peer's handler says where the payload
	// goes. Over vans with van.Caps.Offload, a Target may be zero: the segment travels with the head, and the receiver
	// finds it in Inbound.Payload. All of them take at most Caps.InMessage bytes. If the van refuses a target of the
	// first piece, because the grant is withdrawn or does not cover it, the message goes without targets. Borrowed
	// until Done.
	//
	// The goroutine that sends the message writes the payload. What must wait, the driver writes, unless the message is
	// Prompt.
	Targets []van.Target
	// Direct says that an accelerator holds segments of Payload. So these have a target, and the message is never sent
	// without its targets. If the van refuses one all the same, the session is lost. The caller holds the memory of
	// all segments with a target ([registry.Registry.Hold]), and the peer keeps what it has granted.
	Direct bool
	// Spare, when it is set, is memory that can hold all of Payload and does not overlap it. The caller then owns what
	// Payload points to again when Send returns. Send copies what the van has not taken by then to Spare, and the link
	// borrows Spare until Done. Not together with Targets.
	Spare     []byte
	Completer Completer
	User      any // the caller's
	Haste     Haste

	link      queueLink[Outbound]
	total     uint64
	sent      uint64     // payload bytes in accepted frames
	cursor    van.Cursor // where the next piece begins in Payload
	inflight  int        // frames that the van has not completed
	posted    int64
	use       targetUse
	allFramed bool // the last frame has been accepted
	saving    saving
}

// saving is what becomes of Payload with Spare.
type saving struct {
	due  bool      // it is still to be moved to Spare
	rest [1][]byte // what was moved
}

// targetUse says what Targets are used for.
type targetUse uint8

const (
	targetsUnused  targetUse = iota // nothing: the message has none, or cannot go to them
	targetsUsed                     // the van writes to them
	targetsWritten                  // all of Payload is there already, and only headers are left to send
)

// Haste says which steps of a message are put off, and which are not.
type Haste struct {
	// Prompt has the caller of Send write all of Payload to Targets, under no lock, before the message is queued. So
	// neither the driver nor another sender waits for the copy. A call that is refused because a queue is full has
	// written nothing, unless the queue has filled up meanwhile. If the van refuses a target, the message goes without
	// targets. Over a van without views the van writes, as without Prompt.
	Prompt bool
	// Late has Done come with the next Poll after the acknowledgement, so that it does not delay what came with the
	// acknowledgement. The caller owns the message that much later.
	Late bool
}

// Completer learns the end of a message.
type Completer interface {
	// The driver calls Done exactly once per accepted Send. A nil err says that the peer has acknowledged the message,
	// which means that it was delivered. Done must not block, and may send. It comes before the handlers hear of the
	// loss of the session, also for an Outbound that is Late.
	Done(o *Outbound, err error)
}

// Posted is when the last byte was handed to the van, in ns of the trace clock. Valid from Done on, with Timed.
func (o *Outbound) Posted() int64 { return o.posted }

// reset prepares o to be sent.
func (o *Outbound) reset() {
	o.link, o.cursor = queueLink[Outbound]{}, van.Cursor{}
	o.sent, o.inflight, o.posted, o.allFramed = 0, 0, 0, false
	o.use = targetsUnused
	if len(o.Targets) > 0 {
		o.use = targetsUsed
	}
	o.saving.due = o.Spare != nil
	o.total = 0
	for _, p := range o.Payload {
		o.total += uint64(len(p))
	}
}

// copyToSpare moves to Spare what has not gone. It is called before the Send that was given o returns.
func (o *Outbound) copyToSpare() {
	if !o.saving.due || o.allFramed {
		return
	}
	o.saving.due = false
	rest := o.Spare[o.sent:o.total]
	o.saving.rest[0] = rest
	for o.cursor.Segment < len(o.Payload) {
		rest = rest[bulk.Copy(rest, o.cursor.Next(o.Payload, math.MaxInt64)):]
	}
	o.Payload, o.cursor = o.saving.rest[:], van.Cursor{}
}

// spareOf returns the part of Spare for the next n bytes, or nil when the van need not copy them.
func (o *Outbound) spareOf(n uint64) []byte {
	if !o.saving.due || n == 0 {
		return nil
	}
	return o.Spare[o.sent : o.sent+n : o.sent+n]
}

// checkTargets refuses targets that do not belong to the payload.
func (o *Outbound) checkTargets(caps *van.Caps) error {
	if o.Direct && (len(o.Targets) == 0 || !caps.Offload) {
		return errs.Invalid("memory of an accelerator in a message that no device writes")
	}
	if len(o.Targets) > 0 && (!caps.OneSided || len(o.Targets) != len(o.Payload)) {
		return errs.Invalid("%d targets for %d segments: one each, and only over a one-sided van", len(o.Targets), len(o.Payload))
	}
	if caps.Offload {
		var along int64
		for i, t := range o.Targets {
			if t.IsZero() {
				along += int64(len(o.Payload[i]))
			}
		}
		if along > caps.InMessage {
			return errs.Invalid("%d bytes without a target beside others with one, limit %d", along, caps.InMessage)
		}
	}
	if len(o.Targets) > 0 && o.Spare != nil {
		return errs.Invalid("memory to spare for a message with targets, which is written within Send")
	}
	return nil
}

// checkSpare refuses memory to spare that is too small. After reset.
func (o *Outbound) checkSpare() error {
	if o.Spare != nil && uint64(len(o.Spare)) < o.total {
		return errs.Invalid("%d bytes to spare for a payload of %d", len(o.Spare), o.total)
	}
	return nil
}

// flagsOf returns the flags of a piece of n bytes. To acknowledge at once is asked for with the last piece only.
func (o *Outbound) flagsOf(n uint64) wire.Flags {
	if o.sent+n < o.total {
		return o.Flags &^ wire.FlagAckNow
	}
	return o.Flags
}

// cut fills f with the segments of the next piece, and with their targets. The piece has at most n bytes and at most
// maxSegments segments. The cursor moves behind it, and cut returns its length. What is written has no segments.
func (o *Outbound) cut(f *frame, n int64, maxSegments int) uint64 {
	if o.use == targetsWritten {
		return min(o.total-o.sent, uint64(n))
	}
	var length int64
	for o.cursor.Segment < len(o.Payload) && length < n && len(f.segments) < maxSegments {
		at := o.cursor
		p := o.cursor.Next(o.Payload, n-length)
		if len(p) == 0 {
			continue
		}
		f.segments = append(f.segments, p)
		if o.use == targetsUsed {
			t := o.Targets[at.Segment]
			if !t.IsZero() {
				t.Offset += int64(at.Offset)
			}
			f.targets = append(f.targets, t)
		}
		length += int64(len(p))
	}
	return uint64(length)
}
