package server

import (
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/device"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/link/handles"
	"github.com/stepvan/stepvan/internal/reuse"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/trace"
)

// Respond answers the pulls of one request, in their order, and ends the request: its ID is stale, and its chunks may
// be written again. A request without pulls is answered with no tensors, which ends it at the worker and frees its
// keys. If the worker of such a request has left meanwhile, the Respond has no effect and returns nil.
//
// Respond never waits, and any goroutine may call it. Over shared memory it may copy the tensors. They are borrowed
// until the Response is done. A worker that is gone fails the Response, not the call. After an error of the call
// nothing was sent, and the request is still to be answered: the documentation of ps.Node.Respond lists the errors.
// Budget: 0 allocations in the steady state, one message.
//
// Tensors of an accelerator are answered by [Server.RespondOn] on the default stream of their device.
func (s *Server) Respond(tensors []tensor.Tensor, id RequestID) (Response, error) {
	r, _, err := s.responder.respond(&answers{tensors: tensors, id: id}, false)
	return r, err
}

// responder runs the calls of Respond and its variants. Server.mu guards it.
type responder struct {
	s       *Server
	records *handles.Table[responseState]
	calls   reuse.List[respondCall]
	copying copying
	ended   int64 // when the last call ended, of the trace clock
}

// respondCall is one call of Respond or a variant, on its caller's goroutine.
type respondCall struct {
	requests []*requestSlot
	messages []*message      // one per request
	copies   bool            // the tensors are the caller's again at the end of the call
	toCopy   int64           // bytes that the call itself copies
	prepares bool            // pooled memory may have to be registered
	aimed    bool            // the link writes an answer into the memory of its worker
	promise  *promise        // that the call keeps; nil for others
	sources  []tensor.Tensor // that have spare memory, retained until the end of the call

	// What the link gets.
	sessions  []*link.Session
	outbounds []*link.Outbound
	skipped   []skipped

	// For the time after the unlock.
	release []*link.Inbound // messages of the answered requests
	queued  []*workerPeer   // whose outboxes have messages of this call
}

// skipped is a message that cannot be sent.
type skipped struct {
	message *message
	why     error
}

// answers is what a program has given to answer requests with.
type answers struct {
	tensors []tensor.Tensor // of Respond: one per pull of id
	id      RequestID
	rows    *tensor.Tensor // of RespondVec: cut by like for ids; nil for Respond
	like    []tensor.Tensor
	ids     []RequestID
	stream  device.Stream // that works on tensors of an accelerator
	promise *promise      // to which the answers belong; nil for others
}

// prepare claims the requests and assigns them their answers. Under Server.mu.
func (d *responder) prepare(c *respondCall, a *answers) error {
	if a.rows != nil {
		return d.prepareRows(c, a)
	}
	if err := d.claim(c, a.id); err != nil {
		return err
	}
	r := c.requests[0]
	if len(a.tensors) != len(r.pulls) {
		return errs.Invalid("respond: tensors for the request of %s: there must be one per pull (got %d, want %d)", r.from.name, len(a.tensors), len(r.pulls))
	}
	for i := range a.tensors {
		if err := c.messages[0].addAnswer(r, i, &a.tensors[i]); err != nil {
			return err
		}
	}
	return nil
}

// addAnswer adds the answer to pull i of r, and retains it until the message is recycled.
func (m *message) addAnswer(r *requestSlot, i int, t *tensor.Tensor) error {
	p := &r.pulls[i]
	if err := p.check(t); err != nil {
		return err
	}
	inPlace, err := r.isInPlace(i, t)
	if err != nil {
		return err
	}
	if !inPlace {
		if err := t.Retain(); err != nil {
			return unusable(p, err)
		}
	}
	m.answers = append(m.answers, answer{tensor: *t, inPlace: inPlace})
	return nil
}

// check refuses a tensor that does not fit the pull.
func (p *Pull) check(t *tensor.Tensor) error {
	if err := device.Check(t); err != nil {
		return unusable(p, err)
	}
	n := int64(t.Len())
	switch {
	case n == p.Bytes, n < p.Bytes && p.Variable:
		return nil
	case n < p.Bytes:
		return errs.Invalid("respond: the tensor for the pull of key %d is too small (got %d bytes, want %d): answer the pull whole, or let the worker mark it variable", p.Key, n, p.Bytes)
	}
	return errs.Invalid("respond: the tensor for the pull of key %d is too large (got %d bytes, want at most %d)", p.Key, n, p.Bytes)
}

func unusable(p *Pull, err error) error {
	return fmt.Errorf("respond: the tensor for the pull of key %d cannot be used: %w", p.Key, err)
}

// claim gives the request with this ID to the call. Under Server.mu.
func (d *responder) claim(c *respondCall, id RequestID) error {
	s := d.s
	r := s.requests.find(id)
	if r == nil {
		return fmt.Errorf("respond: request %#x: it is not there to be answered: it was answered before, or this ID was never given: %w", uint64(id), stepvan.ErrStale)
	}
	if s.closed && r.state != requestAnswering && r.state != requestClosing {
		if m := s.requests.recycle(r); m != nil {
			c.release = append(c.release, m)
		}
		return errClosed("respond")
	}
	if !r.on(eventRespond) && c.promise == nil { // a promised answer has its request already
		return fmt.Errorf("respond: request %#x: it is being answered by another call, or is named twice: %w", uint64(id), stepvan.ErrStale)
	}
	c.requests = append(c.requests, r)
	c.messages = append(c.messages, s.messages.take(r.from))
	return nil
}

// respond answers requests: it claims them, makes the messages, offers these to the link, which takes all or none, and
// ends the requests. After an error the requests are as before. It unlocks Server.mu for what takes longer than to lock
// it again: large copies, large messages, and what may come back into the server.
// +checklocksignore: it unlocks in the middle and locks again.
func (d *responder) respond(a *answers, copies bool) (resp Response, borrowed bool, err error) {
	at := trace.Now()
	if a.promise == nil && a.onAccelerator() {
		resp, err = d.promise(a)
		return resp, err == nil, err
	}
	if s := a.stream.Device; !s.IsHost() && a.promise == nil {
		return resp, false, errs.Invalid("respond: stream %#x: it belongs to %s, and memory of the host holds the tensors: give no stream", a.stream.Handle, s)
	}
	if r := d.copying.registry; r.Needed() {
		a.prepareMemory(r)
	}
	mu := &d.s.mu
	mu.Lock()
	defer mu.Unlock()
	c := d.newCall(copies)
	c.promise = a.promise
	if err = d.prepare(c, a); err == nil {
		d.chooseTransfers(c)
		if err = c.reachAccelerator(d.copying.registry); err == nil {
			err = c.checkRoom()
		}
	}
	if err == nil {
		if c.toCopy <= link.LockedBytes && !c.prepares {
			borrowed = d.copyOut(c)
		} else {
			func() {
				mu.Unlock()
				defer mu.Lock()
				borrowed = d.copyOut(c)
			}()
		}
	}
	var record *handles.Record[responseState]
	if err == nil {
		record = d.encode(c, at)
		for again := len(c.sessions) > 0; again; {
			if c.isSmall() {
				err = d.s.transport.SendAll(c.sessions, c.outbounds)
			} else {
				func() {
					mu.Unlock()
					defer mu.Lock()
					err = d.s.transport.SendAll(c.sessions, c.outbounds)
				}()
			}
			again, err = d.refused(c, err)
		}
	}
	if err == nil {
		resp = d.finish(c, record, at)
	} else {
		d.undo(c, record)
		borrowed = false
	}
	if len(c.release) > 0 || len(c.queued) > 0 {
		func() {
			mu.Unlock()
			defer mu.Lock()
			d.cleanUp(c)
		}()
	}
	d.recycle(c)
	return resp, borrowed, err
}

// newCall returns an empty call. Under Server.mu, like all functions of responder below except copyOut and cleanUp.
func (d *responder) newCall(copies bool) *respondCall {
	c := d.calls.Take()
	c.copies, c.toCopy, c.aimed, c.prepares, c.promise = copies, 0, false, false, nil
	return c
}

// encode makes the messages and lists them for the link. It leaves out those of requests that were answered at stop.
func (d *responder) encode(c *respondCall, at int64) *handles.Record[responseState] {
	var record *handles.Record[responseState]
	if c.promise != nil {
		record = c.promise.record
	} else {
		record = d.records.Open()
	}
	record.Value = responseState{pending: len(c.messages) + 1} // one for this call
	stopped := false
	for i, m := range c.messages {
		r := c.requests[i]
		m.record = record
		if d.s.opt.CheckBorrowed && m.spare == nil {
			m.recordChecksums(r)
		}
		m.encodeResponse(d.s, r, at)
		c.sessions = append(c.sessions, r.session)
		c.outbounds = append(c.outbounds, &m.out)
		stopped = stopped || r.answeredAtStop()
	}
	if stopped {
		c.dropUnsendable()
	}
	return record
}

// isSmall reports whether the link takes less time for the messages than unlocking would.
func (c *respondCall) isSmall() bool {
	return len(c.messages) == 1 && c.messages[0].bytes <= link.LockedBytes
}

// finish ends the answered requests. The messages are the link's, except those that were skipped.
func (d *responder) finish(c *respondCall, record *handles.Record[responseState], at int64) Response {
	resp := Response{s: d.s, id: record.ID()}
	for _, k := range c.skipped {
		if k.message.failsResponse(k.why) {
			record.Value.fail(k.message.to.failure("respond", k.why))
		}
		d.s.messages.recycle(k.message)
		d.countDown(record)
	}
	for _, r := range c.requests {
		if m := d.s.requests.recycle(r); m != nil {
			c.release = append(c.release, m)
		}
	}
	if c.promise != nil {
		c.promise.giveBack() // before the program hears that the response is done
	}
	d.countDown(record)
	d.noteEnd(c, at)
	return resp
}

// undo gives the requests back to the program. record is nil when it was not opened.
func (d *responder) undo(c *respondCall, record *handles.Record[responseState]) {
	if record != nil && c.promise == nil {
		d.records.Drop(record)
	}
	for i, m := range c.messages {
		if c.promise == nil { // which keeps its requests
			c.requests[i].on(eventUndo)
		}
		d.s.messages.recycle(m)
	}
}

// cleanUp releases the messages of the answered requests, and sends what is queued. Without Server.mu.
func (d *responder) cleanUp(c *respondCall) {
	for _, m := range c.release {
		m.Release()
	}
	for _, w := range c.queued {
		d.s.messages.flush(w)
	}
}

// recycle takes the call back.
func (d *responder) recycle(c *respondCall) {
	for i := range c.sources {
		c.sources[i].Release()
	}
	c.sessions, c.skipped, c.release = reuse.Slice(c.sessions), reuse.Slice(c.skipped), reuse.Slice(c.release)
	c.sources, c.queued = reuse.Slice(c.sources), reuse.Slice(c.queued)
	c.requests, c.messages, c.outbounds = c.requests[:0], c.messages[:0], c.outbounds[:0] // which the server keeps anyway
	d.calls.Put(c)
}

// countDown counts one message of a response, or the call that made them.
func (d *responder) countDown(record *handles.Record[responseState]) {
	if record.Value.countDown() {
		d.records.Finish(record, record.Value.err)
		d.records.Recycle()
	}
}

// encodeResponse makes m the response to r. Under Server.mu.
func (m *message) encodeResponse(s *Server, r *requestSlot, at int64) {
	var sent int64
	m.bytes = 0
	meta := m.meta[:0]
	for i := range m.answers {
		t := &m.answers[i].tensor
		var d wire.Descriptor
		d.Key, d.Bytes, d.DType = r.pulls[i].Key, uint64(t.Len()), t.DType()
		m.bytes += int64(t.Len())
		if m.answers[i].inPlace {
			d.Flags |= wire.DescInPlace
		} else {
			m.payload = append(m.payload, m.source(t, sent))
			sent += int64(t.Len())
			m.aimAt(&m.answers[i], &d, &r.meta.Pulls[i])
		}
		meta = d.AppendShaped(meta, t.Dims())
	}
	var flags wire.Flags
	var stamps [4]int64
	if r.traced {
		flags = wire.FlagTrace
		stamps = [4]int64{r.received, r.processed, at, trace.Now()}
		meta = wire.AppendStamps(meta, stamps)
	}
	m.meta = meta
	if s.opt.Trace != nil {
		e := &m.entry // whose other fields stay zero
		e.RequestID, e.Key, e.BytesOut, e.BytesBack = r.number, r.firstKey(), r.pushedBytes, m.bytes
		e.Worker, e.Server = int32(r.from.rank), int32(s.rank)
		*(*[4]int64)(e.Stamps[trace.RequestPostRecv:]) = stamps
	}
	channel := link.ChannelResponse
	if sent > s.transport.PieceBytes() {
		channel = link.ChannelBulk
	}
	o := &m.out // one assignment of the whole is 40 instructions more
	o.Channel, o.Op, o.Flags, o.Request, o.Generation = channel, wire.OpResponse, flags, r.number, 0
	o.Pushes, o.Pulls, o.Meta, o.Payload, o.Targets = 0, uint32(len(m.answers)), meta, m.payload, m.targets
	o.Direct = len(m.holds) > 0
	o.Haste.Prompt = m.prompt
	o.Spare, o.Completer, o.User = nil, &s.messages, m
	o.Haste.Late = !s.opt.CheckBorrowed // which compares before the program hears that the worker has gone on
	if m.spare != nil && !m.saved {
		o.Spare = m.spare.Bytes()
	}
}
