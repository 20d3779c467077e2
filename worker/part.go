package worker

import (
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/reuse"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/trace"
)

// part is what one server gets of a call. Its slot stays; the generation tells its users apart.
type part struct {
	next       *part // in the list of free ones
	slot       uint32
	generation uint32

	call   *call // nil while free
	server *server
	pushes []int // indexes into call.push
	pulls  []int // indexes into call.pull, in this server's order
	seen   map[tensor.Key]struct{}

	out     link.Outbound
	meta    []byte
	payload [][]byte
	ways    []way         // of the pushes; none when the server reaches nothing
	targets []link.Target // of the payload, when aimed
	rooms   []link.Target // of the pulls, where the answer may be written; none, or with zeroes among them

	lent                bool  // the server may reach tensors; counted in call.lent
	aimed               bool  // the pushes are written where the server has registered memory
	watch               uint8 // of writers
	done                bool  // the server has the message, or it failed
	reading             bool  // a response that is not whole yet refers to this part, which is not recycled before it ends
	placing             bool  // that response is read into the pull tensors
	answered            bool  // or the server is lost
	stamps              trace.Stamps
	bytesOut, bytesBack uint64
}

// id is the request id on the wire.
func (p *part) id() uint64 { return uint64(p.generation)<<32 | uint64(p.slot) }

// firstKey names the part in traces: the key of its first push, else of its first pull.
func (p *part) firstKey() tensor.Key {
	if len(p.pushes) > 0 {
		return p.call.pushKeys[p.pushes[0]]
	}
	return p.call.pullKeys[p.pulls[0]]
}

// part finds the part with a request id that a peer sent. Under w.mu.
func (w *Worker) part(id uint64) *part {
	slot := uint32(id)
	if uint64(slot) >= uint64(len(w.parts)) {
		return nil
	}
	if p := w.parts[slot]; p.call != nil && p.call.submitting() && p.id() == id {
		return p
	}
	return nil
}

// submitting reports whether peers can know of the call.
func (c *call) submitting() bool { return c.pending > 0 }

// newPart adds a part for v to c. Under w.mu.
func (w *Worker) newPart(c *call, v *server) *part {
	p := w.freeParts
	if p == nil {
		p = &part{slot: uint32(len(w.parts)), generation: 1}
		p.out = link.Outbound{Channel: link.ChannelRequest, Completer: w, User: p, Timed: true}
		w.parts = append(w.parts, p)
	} else {
		w.freeParts = p.next
	}
	p.next, p.call, p.server = nil, c, v
	c.parts = append(c.parts, p)
	c.sessions = append(c.sessions, v.session)
	c.outbounds = append(c.outbounds, &p.out)
	return p
}

// freePart recycles p. Under w.mu.
func (w *Worker) freePart(p *part) {
	p.generation++
	p.payload = reuse.Slice(p.payload)
	p.call, p.server = nil, nil
	p.pushes, p.pulls, p.targets = p.pushes[:0], p.pulls[:0], p.targets[:0]
	p.ways, p.rooms = p.ways[:0], p.rooms[:0]
	p.lent, p.done, p.reading, p.placing, p.answered = false, false, false, false, false
	p.stamps = trace.Stamps{}
	p.bytesOut, p.bytesBack = 0, 0
	p.next, w.freeParts = w.freeParts, p
}

// encode makes the message. op says how the call was routed.
func (p *part) encode(w *Worker, op uint8) {
	c := p.call
	meta := p.meta[:0]
	for j, i := range p.pushes {
		var d wire.Descriptor
		describe(&d, &c.push[i], c.pushKeys[i])
		p.bytesOut += d.Bytes
		if !p.leave(&d, j) {
			p.payload = append(p.payload, c.push[i].Bytes())
		}
		meta = d.AppendShaped(meta, c.push[i].Dims())
	}
	for j, i := range p.pulls {
		var d wire.Descriptor
		describe(&d, &c.pull[i], c.pullKeys[i])
		if len(p.rooms) > 0 {
			locate(&d, &p.rooms[j])
		}
		if len(c.variable) > 0 && c.variable[i] {
			d.Flags |= wire.DescVariable
		}
		meta = d.AppendShaped(meta, c.pull[i].Dims())
	}
	p.meta = meta
	o := &p.out
	o.Op, o.Flags, o.Request, o.Generation = op, wire.FlagTrace, p.id(), p.server.generation.Load()
	o.Pushes, o.Pulls = uint32(len(p.pushes)), uint32(len(p.pulls))
	o.Meta, o.Payload, o.Targets = meta, p.payload, nil
	if p.aimed {
		o.Targets = p.targets
	}
}

// describe says in d what t is, but for the shape.
func describe(d *wire.Descriptor, t *tensor.Tensor, k tensor.Key) {
	d.Key, d.Bytes, d.DType = k, uint64(t.Len()), t.DType()
}

// leave says in d how push j goes, and reports whether its bytes stay where they are.
func (p *part) leave(d *wire.Descriptor, j int) bool {
	if len(p.ways) == 0 {
		return false
	}
	y := &p.ways[j]
	locate(d, &y.target)
	if y.inPlace {
		d.Flags |= wire.DescInPlace
	} else if p.aimed {
		p.targets = append(p.targets, y.target)
	}
	return y.inPlace
}

// locate names memory in d.
func locate(d *wire.Descriptor, t *link.Target) {
	d.Region, d.Offset, d.Generation = uint64(t.Grant), uint64(t.Offset), t.Generation
}

// fits holds an answer against the pulls. Servers check it before they send, so
// an answer that does not fit is a broken server.
func (p *part) fits(got []wire.Descriptor) error {
	if len(got) != len(p.pulls) {
		return &stepvan.ProtocolError{Field: "pulls", Reason: fmt.Sprintf("an answer with %d tensors to %d pulls", len(got), len(p.pulls))}
	}
	c := p.call
	for j, i := range p.pulls {
		room := uint64(c.pull[i].Len())
		variable := len(c.variable) > 0 && c.variable[i]
		if got[j].Key != c.pullKeys[i] || got[j].Bytes > room || got[j].Bytes < room && !variable {
			return &stepvan.ProtocolError{Field: "pull", Reason: fmt.Sprintf("an answer with key %d and %d bytes to the pull of key %d and %d bytes", got[j].Key, got[j].Bytes, c.pullKeys[i], room)}
		}
		if got[j].Flags&wire.DescInPlace != 0 && (len(p.rooms) == 0 || p.rooms[j].Grant == 0) && got[j].Bytes > 0 {
			return &stepvan.ProtocolError{Field: "flags", Reason: fmt.Sprintf("the answer to the pull of key %d is said to be in memory that was not lent", c.pullKeys[i])}
		}
	}
	return nil
}

// take copies an answer that fits into the pull tensors.
func (p *part) take(got []wire.Descriptor, payload []byte) {
	for j, i := range p.pulls {
		if d := &got[j]; d.Flags&wire.DescInPlace == 0 {
			copy(p.call.pull[i].Bytes(), payload[:d.Bytes])
			payload = payload[d.Bytes:]
		}
	}
}

// note keeps what an answer says besides its payload.
func (p *part) note(a *wire.Response) {
	c := p.call
	if c.finished {
		return
	}
	copy(p.stamps[trace.RequestPostRecv:], a.Stamps[:])
	for j := range a.Pulls {
		p.bytesBack += a.Pulls[j].Bytes
	}
	if len(c.variable) > 0 {
		for j, i := range p.pulls {
			c.rec.Value.lengths[i] = int64(a.Pulls[j].Bytes)
		}
	}
}
