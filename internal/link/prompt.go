package link

import (
	"github.com/stepvan/stepvan/internal/bulk"
	"github.com/stepvan/stepvan/van"
)

// A Prompt message is written into the peer's memory before it is queued, on the goroutine of its sender. That takes up
// to milliseconds, for which nobody holds Session.mu. In three steps, prepare refuses what the queue would refuse,
// write copies the payload, and the queue admits the message, which consists of headers by then. The session may end
// between two steps: what was written stays in memory that the peer has lent for this message alone, and the message is
// refused.

// prepare tells whether o could be accepted now, behind so many others of the same call, and resets it.
func (x *sender) prepare(o *Outbound, others int) error {
	x.session.mu.Lock()
	defer x.session.mu.Unlock()
	return x.check(o, others)
}

// writeAll prepares and writes the prompt messages among os, or none of them if one of os cannot be accepted.
func writeAll(ss []*Session, os []*Outbound) error {
	for i, s := range ss {
		if err := s.out.prepare(os[i], count(ss[:i], s)); err != nil {
			return err
		}
	}
	for i, s := range ss {
		if os[i].Haste.Prompt {
			s.out.write(os[i])
		}
	}
	return nil
}

// write writes the payload of o, which is prepared, to its targets. Without Session.mu. A View lasts for one copy, so
// that the peer's withdrawals need not wait for all.
func (x *sender) write(o *Outbound) {
	viewer := x.session.grants.viewer
	if viewer == nil || o.use != targetsUsed || o.total == 0 {
		return // without views the van writes
	}
	e := x.session.transport.engine
	if o.total > briefBytes {
		e.BeginCall()
		defer e.EndCall()
	}
	for i, p := range o.Payload {
		if len(p) == 0 {
			continue
		}
		v, err := viewer.Map(o.Targets[i], int64(len(p)), van.RightWrite)
		if err != nil {
			o.use = targetsUnused // the van would refuse it, too
			return
		}
		bulk.CopyPart(v.Bytes, p, int64(o.total))
		v.Release()
	}
	o.use = targetsWritten
}
