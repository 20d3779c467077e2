package server

import (
	"errors"
	"slices"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/link/handles"
	"github.com/stepvan/stepvan/internal/registry"
	"github.com/stepvan/stepvan/internal/reuse"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/trace"
)

// message is one message to a worker: a response, a refusal or an announcement. It is recycled when the worker has
// acknowledged it or is lost. Guarded by Server.mu, except what the link borrows.
type message struct {
	to   *workerPeer
	out  link.Outbound
	meta []byte

	// Of a response.
	record   *handles.Record[responseState]
	payload  [][]byte
	answers  []answer
	spare    *tensor.Region // memory for what the link does not take at once; nil: it borrows the answers
	saved    bool           // the answers are in spare, one behind the other
	transfer transfer
	aims     bool            // the answers are written into the pull tensors
	prompt   bool            // the goroutine that responds writes them
	targets  []link.Target   // of payload, of a message that aims
	bytes    int64           // of all answers
	holds    []registry.Hold // of answers in memory of an accelerator, which a device writes from there
	entry    trace.Entry

	// Of an announcement.
	change *bufferChange
	chunks []*chunk
}

// answer is one tensor of a response. The server holds it until the worker has acknowledged the response.
type answer struct {
	tensor  tensor.Tensor
	inPlace bool // it is in the worker's memory, and neither sent nor held
	along   bool // it travels with the head, beside others that are written

	// With Options.CheckBorrowed.
	key      tensor.Key // of its pull
	checked  bool       // the checksum was taken
	checksum uint64
}

// messageSender has the messages of a server and sends those in the workers' outboxes. Guarded by Server.mu. It is the
// link.Completer of all messages.
type messageSender struct {
	s    *Server
	list reuse.List[message]
}

// take returns an empty message. Under Server.mu.
func (p *messageSender) take(to *workerPeer) *message {
	m := p.list.Take()
	m.to = to
	return m
}

// recycle takes m back. Under Server.mu.
func (p *messageSender) recycle(m *message) {
	for i := range m.answers {
		if a := &m.answers[i]; !a.inPlace && m.spare == nil { // with spare memory the call of RespondCopy releases them
			a.tensor.Release()
		}
	}
	if m.spare != nil {
		p.s.opt.Memory.Put(m.spare)
		m.spare = nil
	}
	if len(m.holds) > 0 {
		m.letGo(p.s.transport.Registry)
	}
	m.targets, m.transfer, m.saved, m.aims, m.prompt = m.targets[:0], transferLent, false, false, false
	m.meta, m.answers, m.payload, m.chunks = m.meta[:0], reuse.Slice(m.answers), reuse.Slice(m.payload), reuse.Slice(m.chunks)
	m.to, m.record, m.change = nil, nil, nil
	p.list.Put(m)
}

// failsResponse reports whether the response fails when this message fails because of why. A worker that has left does
// not miss the answer to a request that only pushed.
func (m *message) failsResponse(why error) bool {
	return len(m.answers) > 0 || !errors.Is(why, link.ErrLeft)
}

// Done implements link.Completer: the worker has acknowledged the message, or the message has failed.
func (p *messageSender) Done(o *link.Outbound, err error) {
	s, m := p.s, o.User.(*message)
	s.mu.Lock()
	to, record, change := m.to, m.record, m.change
	switch {
	case record == nil:
	case err == nil:
		if s.opt.CheckBorrowed {
			m.verifyChecksums(s)
		}
		if s.opt.Trace != nil {
			s.opt.Trace.Record(m.entry)
		}
	case m.failsResponse(err):
		record.Value.fail(to.failure("respond", err))
	}
	p.recycle(m)
	if record != nil {
		s.responder.countDown(record)
	}
	complete := change != nil && change.confirm(to)
	more := len(to.outbox) > 0
	s.mu.Unlock()
	if complete {
		s.transport.Engine().Set(&change.done)
	}
	if more {
		p.flush(to)
	}
}

// queueError puts an answer with an error into the worker's outbox. Under Server.mu; the caller flushes it.
func (p *messageSender) queueError(to *workerPeer, number uint64, err error) {
	if to.session == nil {
		return
	}
	m := p.take(to)
	m.meta = wire.AppendText(m.meta, err.Error())
	m.out = link.Outbound{
		Channel: link.ChannelResponse, Op: wire.OpResponse, Flags: wire.FlagError,
		Request: number, Meta: m.meta, Completer: p, User: m,
	}
	to.outbox = append(to.outbox, m)
}

// flush offers the worker's outbox to the link, in order. What does not fit stays, and is offered again with the next
// message from or to that worker. The caller does not hold Server.mu.
func (p *messageSender) flush(w *workerPeer) {
	for {
		p.s.mu.Lock()
		m, session := p.next(w)
		p.s.mu.Unlock()
		if m == nil {
			return
		}
		err := session.Send(&m.out)
		p.s.mu.Lock()
		w.sending = false
		full := errors.Is(err, stepvan.ErrWouldBlock) && w.session != nil
		if full {
			w.outbox = slices.Insert(w.outbox, 0, m)
		}
		p.s.mu.Unlock()
		if full {
			return
		}
		if err != nil {
			p.Done(&m.out, err)
		}
	}
}

// next takes the message that goes next out of the outbox. That is the first one. While the first one is an
// announcement that has to wait, it is the first message of another kind. Under Server.mu.
func (p *messageSender) next(w *workerPeer) (*message, *link.Session) {
	if w.sending || len(w.outbox) == 0 || w.session == nil {
		return nil, nil
	}
	i := 0
	if m := w.outbox[0]; m.isAnnouncement() && !p.s.buffers.encodeAnnouncement(w, m) {
		i = slices.IndexFunc(w.outbox, func(m *message) bool { return !m.isAnnouncement() })
		if i < 0 {
			return nil, nil
		}
	}
	m := w.outbox[i]
	w.outbox = slices.Delete(w.outbox, i, i+1)
	w.sending = true
	return m, w.session
}

func (m *message) isAnnouncement() bool { return m.out.Channel == link.ChannelRegister }
