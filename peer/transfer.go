package peer

import (
	"encoding/binary"
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/device"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/link/handles"
	"github.com/stepvan/stepvan/tensor"
)

// Tag tells apart the transfers between two peers. Programs have the tags up to [MaxTag].
type Tag uint64

// MaxTag is the largest tag of a program. The upper half belongs to groups.
const MaxTag Tag = 1<<63 - 1

// tellBytes is how large a transfer may be that travels at once, whether the receiver is ready or not.
const tellBytes = link.LockedBytes

// transfer is one side of a transfer whose bytes do not travel at once, or a receive that waits. Peer.mu guards it.
type transfer struct {
	edge    edge
	next    *transfer // in a queue of the stock
	record  *handles.Record[result]
	view    tensor.Strided
	tag     Tag
	partner *transfer // the other side, in this process
}

func (t *transfer) following() **transfer { return &t.next }

// Send sends the elements of v to a peer. A Send and the [Peer.Recv] that names this peer and the same tag are one
// transfer. Transfers of two peers with one tag are matched in the order of the calls. Both sides need the same type
// and the same number of elements, and the shapes must have a common division.
//
// Send never blocks. v is borrowed until the handle completes: its elements have been sent, or copied. A
// transfer of at most 16 KiB completes without its Recv, so an error at the receiver's side does not fail it. Errors:
//
//   - [stepvan.ErrInvalid]: v is not in memory of the host, or there is no such peer;
//   - [stepvan.ErrWouldBlock]: too much is outstanding with this peer. Wait for a handle first;
//   - [stepvan.ErrPeerLost]: the peer died or left;
//   - [stepvan.ErrClosed]: this node was stopped.
func (p *Peer) Send(v tensor.Strided, to stepvan.Rank, tag Tag) (Handle, error) {
	if tag > MaxTag {
		return Handle{}, errs.Invalid("send: tag %#x: it is too large (want at most %#x): give a smaller one", uint64(tag), uint64(MaxTag))
	}
	return p.send(v, to, tag)
}

func (p *Peer) send(v tensor.Strided, to stepvan.Rank, tag Tag) (Handle, error) {
	if err := checkSource(&v); err != nil {
		return Handle{}, fmt.Errorf("send: %w", err)
	}
	if err := v.Retain(); err != nil {
		return Handle{}, fmt.Errorf("send: %w", err)
	}
	p.mu.Lock()
	defer p.unlock()
	r, err := p.find("send", to)
	if err == nil {
		err = r.stock.checkRoom("send")
	}
	if err != nil {
		v.Release()
		return Handle{}, err
	}
	record := p.start("send", r)
	h := p.handle(record)
	if !r.self() && v.Len() <= tellBytes {
		r.tell(&v, tag, record)
		v.Release()
		return h, nil
	}
	t := p.spares.transfers.Take()
	t.record, t.view, t.tag, t.edge.remote = record, v, tag, r
	r.stock.outstanding++
	if r.self() {
		r.stock.matchLocal(t)
		return h, nil
	}
	m := r.message(opOffer, 0)
	m.offer, m.owner = t, t
	r.send(m)
	return h, nil
}

// checkSource refuses views whose bytes the processor does not reach.
func checkSource(v *tensor.Strided) error {
	m := v.Memory()
	if err := m.CheckHost(); err != nil {
		return err
	}
	return device.CheckHost(&m)
}

// checkDestination refuses views that cannot be written to.
func checkDestination(v *tensor.Strided) error {
	if err := v.CheckDestination(); err != nil {
		return err
	}
	m := v.Memory()
	return device.CheckHost(&m)
}

// tell sends a small transfer. Its elements are copied where the session does not take them at once.
func (r *remote) tell(v *tensor.Strided, tag Tag, record *handles.Record[result]) {
	m := r.message(opTell, 0)
	m.meta = binary.LittleEndian.AppendUint64(m.meta, uint64(tag))
	m.meta = append(m.meta, byte(v.DType()))
	r.stock.toldCount++
	n := int(v.Len())
	if cap(m.small) < n {
		m.small = make([]byte, tellBytes)
	}
	connected := r.session != nil && r.backlog.empty()
	if !connected {
		m.record = record // it completes when it is sent
	}
	if t, ok := v.Contiguous(); ok && connected && n > 0 {
		m.list, m.out.Spare = append(m.list, t.Bytes()), m.small[:n]
	} else if n > 0 {
		packView(m.small[:n], v)
		m.list = append(m.list, m.small[:n])
	}
	r.sendTold(m, connected)
	if connected {
		r.peer.results.Finish(record, nil)
	}
}

// sendTold sends m. A message that the session has no room for waits with a copy of its elements.
func (r *remote) sendTold(m *message, connected bool) {
	m.out.Meta, m.out.Payload = m.meta, m.list
	if connected && r.take(m) {
		return
	}
	if m.out.Spare != nil {
		copy(m.out.Spare, m.list[0])
		m.list[0], m.out.Spare = m.out.Spare, nil
	}
	r.backlog.push(m)
	r.connect(true)
}

// packView copies the elements of v to contiguous memory.
func packView(to []byte, v *tensor.Strided) {
	f := formOf(v)
	c := f.contiguous()
	w, _ := route(&f, &c) // the shapes are the same
	w.Copy(pointer(to), address(v))
}

// unpackView copies elements from contiguous memory to v.
func unpackView(v *tensor.Strided, from []byte) {
	f := formOf(v)
	c := f.contiguous()
	w, _ := route(&c, &f) // the shapes are the same
	w.Copy(address(v), pointer(from))
}

// contiguous is the form of a contiguous view of the same shape.
func (f *form) contiguous() form {
	c := *f
	step := int64(1)
	for i := int(c.rank) - 1; i >= 0; i-- {
		c.strides[i] = step
		step *= max(c.dims[i], 1)
	}
	return c
}

// describe makes m the offer of t, over a session that is open.
func (t *transfer) describe(m *message) {
	e := &t.edge
	e.remote, e.out, e.owner = m.to, true, t
	e.open()
	e.state, e.missing = edgeRunning, stepNote // the receiver may read the elements where they are
	f := formOf(&t.view)
	f.place = m.to.reach(&t.view, link.RightRead)
	m.owner, m.out.Request = nil, uint64(e.id)
	m.meta = binary.LittleEndian.AppendUint64(m.meta, uint64(t.tag))
	m.meta = f.append(m.meta)
}

// reach returns how the peer sees the memory of v, or the zero Target.
func (r *remote) reach(v *tensor.Strided, rights link.Rights) link.Target {
	if !r.session.Caps().Views {
		return link.Target{}
	}
	m := v.Memory()
	if m.Len() == 0 {
		return link.Target{}
	}
	return r.grants.Reach(m.Bytes(), rights)
}

// sent implements sender for an offer that has never gone out.
func (t *transfer) sent(m *message, err error) {
	if err != nil && t.edge.id == 0 {
		t.finish(m.to.failure("send", err))
		t.recycle(m.to.peer)
	}
}

// Recv takes the elements of a [Peer.Send] of the peer that names this one and the same tag, and puts them into v. It
// never blocks. v is borrowed until the handle completes. After a failure the other peer may still write to v for a
// while, and the memory cannot be closed until then. If the two sides do not fit, the error is a [*MismatchError] at
// both. The other errors are as for Send.
func (p *Peer) Recv(v tensor.Strided, from stepvan.Rank, tag Tag) (Handle, error) {
	if tag > MaxTag {
		return Handle{}, errs.Invalid("recv: tag %#x: it is too large (want at most %#x): give a smaller one", uint64(tag), uint64(MaxTag))
	}
	return p.recv(v, from, tag)
}

func (p *Peer) recv(v tensor.Strided, from stepvan.Rank, tag Tag) (Handle, error) {
	if err := checkDestination(&v); err != nil {
		return Handle{}, fmt.Errorf("recv: %w", err)
	}
	if err := v.Retain(); err != nil {
		return Handle{}, fmt.Errorf("recv: %w", err)
	}
	p.mu.Lock()
	defer p.unlock()
	r, err := p.find("recv", from)
	if err == nil {
		err = r.stock.checkRoom("recv")
	}
	if err != nil {
		v.Release()
		return Handle{}, err
	}
	t := p.spares.transfers.Take()
	t.record, t.view, t.tag = p.start("recv", r), v, tag
	t.edge.remote = r
	r.stock.outstanding++
	h := p.handle(t.record)
	r.stock.receive(t)
	return h, nil
}

// Cancel ends a [Peer.Recv] that nothing has matched. Its handle fails with [stepvan.ErrClosed]. It reports whether
// that was so. It changes nothing for other operations.
func (p *Peer) Cancel(h Handle) bool {
	p.mu.Lock()
	defer p.unlock()
	record, err := p.results.Pin(h.id)
	if err != nil {
		return false
	}
	defer p.results.Unpin(h.id)
	t := record.Value.posted
	if t == nil || record.Done() || !t.edge.remote.stock.unpost(t) {
		return false
	}
	t.finish(errs.Closed("recv: it was cancelled"))
	t.recycle(p)
	return true
}

// finish completes the handle of t.
func (t *transfer) finish(err error) {
	if t.record == nil {
		return
	}
	r := t.edge.remote
	t.record.Value.posted = nil
	if err == nil {
		t.view.Release() // before the handle completes: the program may close the memory at once
		t.view = tensor.Strided{}
	}
	r.peer.results.Finish(t.record, err)
	t.record = nil
	r.stock.outstanding--
}

// recycle takes back a transfer that is over.
func (t *transfer) recycle(p *Peer) {
	if t.view.Check() == nil {
		t.view.Release()
	}
	t.view, t.partner = tensor.Strided{}, nil
	t.edge.id = 0
	p.spares.transfers.Put(t)
}

// arrived implements edgeOwner.
func (t *transfer) arrived(e *edge) {
	t.finish(nil)
	e.close()
	t.recycle(e.remote.peer)
}

// failed implements edgeOwner.
func (t *transfer) failed(e *edge, err error) { t.finish(err) }

// leavePartner says that this side does not read the elements of the other side any more. The other side is in this
// process. made is what that means for its run.
func (t *transfer) leavePartner(made edgeStep) {
	x := &t.partner.edge
	t.partner = nil
	x.busy--
	x.step(made)
	x.checkQuiet()
}

// quiet implements edgeOwner.
func (t *transfer) quiet(e *edge) {
	if t.partner != nil {
		t.leavePartner(0)
	}
	e.close()
	t.recycle(e.remote.peer)
}
