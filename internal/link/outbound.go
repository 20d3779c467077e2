package link

import (
	"github.com/stepvan/stepvan/internal/bulk"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

// Outbound is one message to send. The caller fills it, owns it again after
// Completer.Done, and may then use it for the next message. It must not be copied or
// touched in between.
type Outbound struct {
	Channel    wire.Channel
	Op         uint8 // meaning is the channel's
	Flags      wire.Flags
	Timed      bool // Posted is asked for: a clock read
	Request    uint64
	Generation uint32
	Pushes     uint32
	Pulls      uint32
	Meta       []byte   // borrowed until Done
	Payload    [][]byte // borrowed until Done
	// Targets name, for each segment of Payload, the place in the peer's grants that it is written to
	// (Session.OneSided), so that the peer gets the message with Inbound.Written. Empty: the
	// peer's handler says where. When the peer has withdrawn a grant before the
	// first piece went, the message goes as if it had none. Borrowed until Done.
	Targets []van.Target
	// Spare, when it is set, is memory for all of Payload, which is elsewhere. What Payload points to is then the caller's
	// again when Send returns: what has not gone by then was copied to Spare, which is borrowed until Done. Not
	// together with Targets.
	Spare     []byte
	Completer Completer
	User      any // the caller's

	next     *Outbound
	total    uint64
	sent     uint64 // payload bytes in accepted frames
	segment  int    // where the next piece begins in Payload
	inside   int
	inflight int // frames that the van has not completed
	posted   int64
	untarget bool // Targets are not to be used: a grant is gone
	exposed  bool // Payload is still to be moved to Spare
	spare    [1][]byte
	framed   bool // the last frame has been accepted
}

// Completer learns the end of a message.
type Completer interface {
	// Done is called exactly once per accepted Send, by the driver. err is nil when
	// the peer has acknowledged the message, which means that it was delivered.
	// It must not block, and may send.
	Done(o *Outbound, err error)
}

// Posted is when the last byte was handed to the van, in ns of the trace clock. Valid from Done on, with Timed.
func (o *Outbound) Posted() int64 { return o.posted }

// begin prepares o for a new journey.
func (o *Outbound) begin() {
	o.next, o.sent, o.segment, o.inside, o.inflight, o.posted, o.framed = nil, 0, 0, 0, 0, 0, false
	o.untarget = len(o.Targets) == 0
	o.exposed = o.Spare != nil
	o.total = 0
	for _, p := range o.Payload {
		o.total += uint64(len(p))
	}
}

// shelter moves to Spare what has not gone. It is called before the Send that was given o returns.
func (o *Outbound) shelter() {
	if !o.exposed || o.framed {
		return
	}
	o.exposed = false
	at := o.Spare[o.sent:o.total]
	o.spare[0] = at
	for inside := o.inside; o.segment < len(o.Payload); inside = 0 {
		at = at[bulk.Copy(at, o.Payload[o.segment][inside:]):]
		o.segment++
	}
	o.Payload, o.segment, o.inside = o.spare[:], 0, 0
}

// checkTargets refuses targets that do not belong to the payload.
func (o *Outbound) checkTargets(oneSided bool) error {
	if len(o.Targets) > 0 && (!oneSided || len(o.Targets) != len(o.Payload)) {
		return errs.Invalid("%d targets for %d segments: one each, and only over a one-sided van", len(o.Targets), len(o.Payload))
	}
	if len(o.Targets) > 0 && o.Spare != nil {
		return errs.Invalid("memory to spare for a message with targets, which is written within Send")
	}
	return nil
}

// checkSpare refuses memory to spare that is too small. After begin.
func (o *Outbound) checkSpare() error {
	if o.Spare != nil && uint64(len(o.Spare)) < o.total {
		return errs.Invalid("%d bytes to spare for a payload of %d", len(o.Spare), o.total)
	}
	return nil
}

// cut fills f with the segments, and their targets, of the next piece of at most n bytes and at
// most maxSegments segments, and moves on. It returns the piece's length.
func (o *Outbound) cut(f *frame, n int64, maxSegments int) uint64 {
	var length int64
	for o.segment < len(o.Payload) && length < n && len(f.segs) < maxSegments {
		p := o.Payload[o.segment][o.inside:]
		if int64(len(p)) > n-length {
			p = p[:n-length]
		}
		if len(p) > 0 {
			f.segs = append(f.segs, p)
			if !o.untarget {
				t := o.Targets[o.segment]
				t.Offset += int64(o.inside)
				f.targets = append(f.targets, t)
			}
		}
		length += int64(len(p))
		o.inside += len(p)
		if o.inside == len(o.Payload[o.segment]) {
			o.segment, o.inside = o.segment+1, 0
		}
	}
	return uint64(length)
}

// lane is the queue of one channel of a session.
type lane struct {
	head, tail *Outbound
}

func (l *lane) push(o *Outbound) {
	if l.tail != nil {
		l.tail.next = o
	} else {
		l.head = o
	}
	l.tail = o
}

func (l *lane) pop() *Outbound {
	o := l.head
	l.head = o.next
	if l.head == nil {
		l.tail = nil
	}
	o.next = nil
	return o
}
