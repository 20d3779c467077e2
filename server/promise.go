package server

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/device"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/link/handles"
	"github.com/stepvan/stepvan/internal/staging"
	"github.com/stepvan/stepvan/tensor"
)

// RespondOn is [Server.Respond] for tensors of an accelerator on which a stream works. They are read when the work is
// over that was queued to the stream before the call. The zero Stream is the default stream of their device. All
// tensors of one call that an accelerator holds belong to one device.
//
// A goroutine sends them. It copies them to pooled memory of the host before, unless a device of the van reaches them
// where they are: then they are borrowed until the Response is done. It waits for room where Respond refuses. When
// the device fails, the Response fails, and so do the handles of the workers, with stepvan.ErrRemote.
func (s *Server) RespondOn(stream device.Stream, tensors []tensor.Tensor, id RequestID) (Response, error) {
	r, _, err := s.responder.respond(&answers{tensors: tensors, id: id, stream: stream}, false)
	return r, err
}

// RespondVecOn is [Server.RespondVec] with the stream of [Server.RespondOn].
func (s *Server) RespondVecOn(stream device.Stream, ret tensor.Tensor, like []tensor.Tensor, ids []RequestID) (Response, error) {
	r, _, err := s.responder.respond(&answers{rows: &ret, like: like, ids: ids, stream: stream}, false)
	return r, err
}

// promise is an answer that waits for its accelerator. Its requests are being answered until it is sent or has failed.
type promise struct {
	s      *Server
	a      answers // with lists of its own
	device tensor.Device
	ready  device.Event // of the program's stream
	record *handles.Record[responseState]
	copies bool // it waits for the copies, and not for the stream; Server.mu guards it

	own    []tensor.Tensor // of the program, which the promise holds
	region *tensor.Region  // memory of the host for them
}

// promiseTable has the promises that are not sent, by the number of their response. Server.mu guards it.
type promiseTable struct{ list map[handles.ID]*promise }

// onAccelerator reports whether an accelerator holds a tensor.
func (a *answers) onAccelerator() bool {
	onHost := func(t *tensor.Tensor) bool { return t.Device().IsHost() }
	if a.rows != nil {
		return !onHost(a.rows)
	}
	for i := range a.tensors {
		if !onHost(&a.tensors[i]) {
			return true
		}
	}
	return false
}

// each calls do for all tensors with memory of their own, until it returns an error.
func (a *answers) each(do func(*tensor.Tensor) error) error {
	if a.rows != nil {
		return do(a.rows)
	}
	for i := range a.tensors {
		if err := do(&a.tensors[i]); err != nil {
			return err
		}
	}
	return nil
}

// clone returns answers that share no list with the caller's.
func (a *answers) clone() answers {
	c := *a
	c.tensors, c.like, c.ids = slices.Clone(a.tensors), slices.Clone(a.like), slices.Clone(a.ids)
	if a.rows != nil {
		rows := *a.rows
		c.rows = &rows
	}
	return c
}

// promise checks answers of an accelerator as a call that sends them at once, and leaves the rest to a goroutine.
func (d *responder) promise(a *answers) (Response, error) {
	p := &promise{s: d.s, a: a.clone()}
	release, err := d.reserve(p)
	for _, m := range release {
		m.Release()
	}
	if err != nil {
		return Response{}, err
	}
	if err := p.recordEvent(); err != nil {
		p.s.mu.Lock()
		defer p.s.mu.Unlock()
		p.end()
		p.undoRequests()
		d.records.Drop(p.record)
		p.giveBack()
		return Response{}, err
	}
	r := Response{s: d.s, id: p.record.ID()}
	go p.keep()
	return r, nil
}

// reserve claims the requests of a promise, after all checks of its answers. The caller releases the messages.
func (d *responder) reserve(p *promise) (release []*link.Inbound, err error) {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	c := d.newCall(false)
	if err = d.prepare(c, &p.a); err == nil {
		err = p.hold()
	}
	d.undo(c, nil)
	if err == nil {
		for _, r := range c.requests {
			r.on(eventRespond)
		}
		p.record = d.records.Open()
		p.record.Value = responseState{pending: 1}
		p.a.promise = p
		d.s.promises.list[p.record.ID()] = p
		d.s.arrivals.busy++
	}
	release = slices.Clone(c.release)
	d.recycle(c)
	return release, err
}

// hold holds the tensors, and notes the device of those that the processor does not reach.
func (p *promise) hold() error {
	err := p.a.each(func(t *tensor.Tensor) error {
		if d := t.Device(); !d.IsHost() {
			if !p.device.IsHost() && p.device != d {
				return errs.Invalid("respond: the tensors: two accelerators hold them (got %s and %s): answer with tensors of one device", p.device, d)
			}
			p.device = d
		}
		if err := t.Retain(); err != nil {
			return err
		}
		p.own = append(p.own, *t)
		return nil
	})
	if s := p.a.stream.Device; err == nil && s != (tensor.Device{}) && s != p.device {
		err = errs.Invalid("respond: stream %#x: it belongs to another device than the tensors (got %s, want %s): give a stream of their device", p.a.stream.Handle, s, p.device)
	}
	if err != nil {
		p.giveBack()
	}
	return err
}

// giveBack ends the use of all memory.
func (p *promise) giveBack() {
	for i := range p.own {
		p.own[i].Release()
	}
	p.own = nil
	if p.region != nil {
		p.s.stager.Put(p.region) // what is sent holds its part
		p.region = nil
	}
}

// recordEvent notes what the stream of the program has to do first.
func (p *promise) recordEvent() error {
	driver, err := device.Find(p.device.Kind)
	if err != nil {
		return err
	}
	p.a.stream.Device = p.device
	if p.ready, err = driver.Record(p.a.stream); err != nil {
		return fmt.Errorf("respond: stream %#x of %s: no event can be recorded: %w", p.a.stream.Handle, p.device, err)
	}
	return nil
}

// keep copies and sends the answers, on a goroutine of its own.
func (p *promise) keep() {
	err := p.awaitStream()
	if err == nil {
		err = p.send()
	}
	if errors.Is(err, errUnreached) {
		if err = p.copyOut(); err == nil {
			err = p.send()
		}
	}
	p.finish(err)
	p.s.arrivals.closeStager()
}

// mustEnd returns why the answers cannot be sent any more, or nil.
func (p *promise) mustEnd() error {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if p.s.closed {
		return errClosed("respond")
	}
	return nil
}

// awaitStream waits for the stream of the program.
func (p *promise) awaitStream() error {
	err := device.Await(p.ready, p.mustEnd)
	p.ready.Close()
	if err != nil {
		return fmt.Errorf("%s: the work on stream %#x of %s before the answer has failed: %w", p.name(), p.a.stream.Handle, p.device, err)
	}
	return nil
}

// copyOut puts copies in memory of the host in the place of the tensors of the accelerator.
func (p *promise) copyOut() error {
	n := 0
	for i := range p.own {
		if !p.own[i].Device().IsHost() {
			n += int(alignUp(int64(p.own[i].Len())))
		}
	}
	var err error
	if p.region, err = p.s.stager.Memory(p.device, n, p.mustEnd); err != nil {
		return fmt.Errorf("%s: %w", p.name(), err)
	}
	p.noteCopies()
	var moves []staging.Move
	var at int64
	err = p.a.each(func(t *tensor.Tensor) error {
		if t.Device().IsHost() {
			return nil
		}
		host, err := tensor.FromRegion(p.region, at, t.DType(), t.Shape())
		if err != nil {
			return err
		}
		at += alignUp(int64(t.Len()))
		moves = append(moves, staging.Move{Tensor: *t, Host: host.Bytes()})
		*t = host
		return nil
	})
	if err == nil {
		err = p.s.stager.Out(p.device, moves)
	}
	if err != nil {
		return fmt.Errorf("%s: the copy out of %s has failed: %w", p.name(), p.device, err)
	}
	return nil
}

func (p *promise) noteCopies() {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	p.copies = true
}

// name says which tensor an error is about: the first one of the accelerator.
func (p *promise) name() string {
	if p.a.rows != nil {
		return "ret_buffer"
	}
	for i := range p.own {
		if !p.own[i].Device().IsHost() {
			return fmt.Sprintf("tensor %d", i)
		}
	}
	return "the tensors"
}

// sendPause is the time between two attempts to send while a queue is full.
const sendPause = 50 * time.Microsecond

// send sends the answers, and waits for room. errUnreached says that they must be copied before.
func (p *promise) send() error {
	for {
		_, _, err := p.s.responder.respond(&p.a, false)
		if !errors.Is(err, stepvan.ErrWouldBlock) {
			return err
		}
		if err := p.mustEnd(); err != nil {
			return err
		}
		time.Sleep(sendPause)
	}
}

// finish ends the promise, which has failed unless err is nil.
func (p *promise) finish(err error) {
	var later deferredWork
	p.s.mu.Lock()
	p.end()
	p.giveBack()
	if err != nil {
		p.failRequests(err, &later)
		p.record.Value = responseState{pending: 1, err: &stepvan.OpError{Op: "respond", Err: err}}
		p.s.responder.countDown(p.record)
	}
	p.s.mu.Unlock()
	later.run(p.s)
}

// end takes the promise out of the table. Under Server.mu.
func (p *promise) end() {
	delete(p.s.promises.list, p.record.ID())
	p.s.arrivals.busy--
}

// undoRequests has the requests answered by another call. Under Server.mu.
func (p *promise) undoRequests() {
	for _, r := range p.requests() {
		r.on(eventUndo)
	}
}

// failRequests ends the requests, and tells their workers why. Under Server.mu.
func (p *promise) failRequests(why error, later *deferredWork) {
	for _, r := range p.requests() {
		if r.from.session == r.session && !r.answeredAtStop() && !p.s.closed {
			p.s.messages.queueError(r.from, r.number, why)
			later.flush = append(later.flush, r.from)
		}
		later.releaseMessage(p.s.requests.recycle(r))
	}
}

// requests returns the requests that are not answered. Under Server.mu.
func (p *promise) requests() (list []*requestSlot) {
	ids := p.a.ids
	if p.a.rows == nil {
		ids = []RequestID{p.a.id}
	}
	for _, id := range ids {
		if r := p.s.requests.find(id); r != nil {
			list = append(list, r)
		}
	}
	return list
}

// late is the error of a wait that ended before the promise was sent.
func (p *promise) late(cause error) error {
	text := fmt.Sprintf("%s: stream %#x of %s has not done the work that was queued before the answer: wait again, the response is not over", p.name(), p.a.stream.Handle, p.device)
	if p.copies {
		text = fmt.Sprintf("%s: it is copied out of %s, or waits for room: wait again, the response is not over", p.name(), p.device)
	}
	return &stepvan.OpError{Op: "respond", Err: errs.Late(text, cause)}
}

// describePromise is the error of a wait for a response that is not sent. It returns nil for others.
func (r Response) describePromise(cause error) error {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	if p := r.s.promises.list[r.id]; p != nil {
		return p.late(cause)
	}
	return nil
}
