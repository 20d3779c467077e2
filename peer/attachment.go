package peer

import (
	"encoding/binary"
	"fmt"
	"slices"
	"unsafe"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/link/handles"
	"github.com/stepvan/stepvan/internal/slots"
	"github.com/stepvan/stepvan/tensor"
)

// attachment is a window of another peer that this one uses, over one session. Peer.mu guards it.
type attachment struct {
	token  Token
	id     slots.ID // by which the owner answers
	remote *remote
	link   *link.Session // that the owner was asked over; nil before
	form   form          // of the window; without elements until the owner has answered
	rights Rights
	known  bool      // the owner has answered
	view   link.View // of the window, where this process sees it
	mapped bool

	waiting queue[access, *access] // operations that wait for the answer
	using   int                    // operations that copy from the view, or to it
	revoked bool                   // the owner waits for opReleased
}

type attachmentSlot struct{ attachment *attachment }

// access is a Get or a Put. Peer.mu guards it.
type access struct {
	edge    edge
	next    *access
	record  *handles.Record[result]
	view    tensor.Strided
	made    made // in place of view
	at      [tensor.MaxRank]int64
	put     bool
	note    []byte
	hasNote bool
	to      *attachment
	own     *Window // of this process
	using   bool    // it is among attachment.using
	look    *View   // it copies nothing
}

func (x *access) following() **access { return &x.next }

// Get copies a part of a window of another peer to dst. The part has the shape of dst and begins at element at of the
// window; nil means its first element. The program of the owner takes no part. dst is borrowed until the handle
// completes. Get never blocks. Errors, also of the handle:
//
//   - [stepvan.ErrInvalid]: the token, the part or its type does not fit the window;
//   - [stepvan.ErrStale]: the window was closed;
//   - [stepvan.ErrRemote]: the owner refuses. The text has its reason;
//   - [stepvan.ErrWouldBlock], [stepvan.ErrPeerLost], [stepvan.ErrClosed] as of [Peer.Send].
func (p *Peer) Get(dst tensor.Strided, t Token, at []int64) (Handle, error) {
	if err := checkDestination(&dst); err != nil {
		return Handle{}, fmt.Errorf("get: %w", err)
	}
	return p.windows.access("get", dst, made{}, t, at, nil, false)
}

// Put copies src to a part of a window of another peer, as Get does the other way round. Its handle completes when the
// elements are there. The owner then gets the note, unless it is nil ([WindowOptions.Note]). A note has at most
// [MaxMail] bytes.
func (p *Peer) Put(src tensor.Strided, t Token, at []int64, note []byte) (Handle, error) {
	if err := checkSource(&src); err != nil {
		return Handle{}, fmt.Errorf("put: %w", err)
	}
	if len(note) > MaxMail {
		return Handle{}, errs.Invalid("put: note: too long (got %d, want at most %d bytes): put it into the elements", len(note), MaxMail)
	}
	return p.windows.access("put", src, made{}, t, at, note, true)
}

// access begins a Get or a Put, of a view or of what is made.
func (t *windowTable) access(op string, v tensor.Strided, what made, token Token, at []int64, note []byte, put bool) (Handle, error) {
	p := t.p
	if err := token.check(op); err != nil {
		return Handle{}, err
	}
	rank := int(what.form.rank)
	if what.maker == nil {
		rank = len(v.Dims())
	}
	if n := rank; len(at) != 0 && len(at) != n {
		return Handle{}, errs.Invalid("%s: at: wrong number of dimensions (got %d, want %d or none): give the first element of the part", op, len(at), n)
	}
	if i := slices.IndexFunc(at, func(n int64) bool { return n < 0 }); i >= 0 {
		return Handle{}, errs.Invalid("%s: at: it is negative (got %d in dimension %d): count from the first element", op, at[i], i)
	}
	if what.maker == nil {
		if err := v.Retain(); err != nil {
			return Handle{}, fmt.Errorf("%s: %w", op, err)
		}
	}
	p.mu.Lock()
	r, err := p.find(op, token.owner())
	if err == nil {
		err = r.stock.checkRoom(op)
	}
	if err != nil {
		p.unlock()
		if what.maker == nil {
			v.Release()
		}
		return Handle{}, err
	}
	x := p.spares.accesses.Take()
	x.record, x.view, x.made, x.put, x.hasNote = p.start(op, r), v, what, put, note != nil
	x.note = append(x.note[:0], note...)
	x.at = [tensor.MaxRank]int64{}
	copy(x.at[:], at)
	x.edge.remote = r
	r.stock.outstanding++
	h := p.handle(x.record)
	copying := &x.edge.copying // x may be used again at any time, and its task looks to that
	x.edge.helped = what.maker != nil
	if r.self() {
		t.accessOwn(x, &token)
	} else {
		t.attachment(r, token).begin(x)
	}
	helped := x.edge.helped
	x.edge.helped = false // the driver may begin it, which must not work on it
	p.unlock()
	if helped {
		copying.help()
	}
	return h, nil
}

// form describes what an operation reads or writes at this end.
func (x *access) form() form {
	if x.made.maker != nil {
		return x.made.form
	}
	return formOf(&x.view)
}

// memory is its first element; nil for what is made.
func (x *access) memory() unsafe.Pointer {
	if x.made.maker != nil {
		return nil
	}
	return address(&x.view)
}

// free gives back what was borrowed for an operation.
func (x *access) free() {
	switch {
	case x.made.maker != nil:
		x.made.maker.Free()
	case x.look == nil && x.view.Check() == nil:
		x.view.Release()
	}
	x.view, x.made = tensor.Strided{}, made{}
}

// attachment finds or makes the attachment of a token.
func (t *windowTable) attachment(r *remote, token Token) *attachment {
	a := t.others[token]
	if a == nil {
		a = &attachment{token: token, remote: r}
		var slot *attachmentSlot
		a.id, slot = t.ids.Take()
		slot.attachment = a
		t.others[token] = a
		m := r.message(opAttach, uint64(a.id))
		m.meta = binary.LittleEndian.AppendUint64(m.meta, uint64(token.window()))
		m.meta = append(m.meta, 0)
		m.meta = append(m.meta, token[tokenKey:]...)
		m.owner = a
		r.send(m)
	}
	return a
}

// sent implements sender: a question that could not be asked.
func (a *attachment) sent(_ *message, err error) {
	if err != nil && !a.known {
		a.end(a.remote.failure("window", err))
	}
}

// answered handles the answer of the owner.
func (t *windowTable) answered(r *remote, m *link.Inbound) error {
	id := slots.ID(m.Header.Request)
	slot := t.ids.Find(id)
	if slot == nil && t.ids.Named(id) {
		return nil
	}
	if slot == nil || slot.attachment.remote != r || slot.attachment.known {
		return errs.Protocol("request", 56, "a peer answers about window %#x, which it was not asked", m.Header.Request)
	}
	a := slot.attachment
	d := decode(m.Meta)
	if op(m.Header.Op) == opDetach {
		why := d.reason()
		if err := d.end(); err != nil {
			return err
		}
		a.end(r.failure("window", why))
		return nil
	}
	rights, f := Rights(d.u8()), d.form()
	if err := d.end(); err != nil {
		return err
	}
	a.known, a.rights, a.form, a.link = true, rights, f, r.session
	if !f.place.IsZero() && r.session.Caps().Views && f.span() > 0 {
		if v, err := r.session.Map(f.place, f.span(), rights); err == nil {
			a.view, a.mapped = v, true
		}
	}
	for !a.waiting.empty() {
		a.start(a.waiting.pop())
	}
	return nil
}

// begin has an operation start as soon as the owner has answered.
func (a *attachment) begin(x *access) {
	x.to = a
	if a.known {
		a.start(x)
	} else {
		a.waiting.push(x)
	}
}

// start starts an operation.
func (a *attachment) start(x *access) {
	if x.look != nil {
		a.see(x)
		return
	}
	mine := x.form()
	box, err := a.box(x, &mine)
	if err != nil {
		x.finish(err)
		x.recycle()
		return
	}
	src, dst := &box, &mine
	if x.put {
		src, dst = dst, src
	}
	w, err := route(src, dst)
	if err == nil {
		err = x.made.fits(&w)
	}
	if err != nil {
		x.finish(err)
		x.recycle()
		return
	}
	e := &x.edge
	e.out, e.owner = x.put, x
	e.open()
	e.written.maker, e.streamed.maker = x.made.maker, x.made.maker
	switch {
	case a.mapped:
		a.using++
		x.using = true
		theirs := unsafe.Add(pointer(a.view.Bytes), box.place.Offset-a.form.place.Offset)
		if x.put {
			e.written.add(&w, x.memory(), theirs)
		} else {
			e.viewed.add(&w, x.memory(), theirs)
		}
		e.begin()
	case w.Bytes() == 0:
		e.begin()
	default:
		e.streamed.add(&w, x.memory(), nil)
		x.request(&mine)
	}
}

// request asks the owner to send the elements, or to take them.
func (x *access) request(mine *form) {
	e, a := &x.edge, x.to
	o := opPut
	if !x.put {
		o = opGet
		e.begin()
	}
	m := e.remote.message(o, uint64(a.token.window()))
	m.meta = binary.LittleEndian.AppendUint64(m.meta, uint64(e.id))
	m.meta = append(m.meta, a.token[tokenKey:]...)
	m.meta = mine.append(m.meta)
	for i := range mine.rank {
		m.meta = binary.AppendUvarint(m.meta, uint64(x.at[i]))
	}
	e.remote.send(m)
}

// served handles the owner's word that the elements of a Put may come.
func (t *windowTable) served(r *remote, m *link.Inbound) error {
	e, err := t.p.edges.find(r, m)
	if err != nil || e == nil || e.state >= edgeFailed {
		return err
	}
	d := decode(m.Meta)
	id := d.u64()
	if err := d.end(); err != nil {
		return err
	}
	x, ok := e.owner.(*access)
	if !ok || !x.put || e.state != edgeIdle || e.theirs != 0 || id == 0 {
		return errs.Protocol("request", 56, "a peer takes %#x, which is not a put", m.Header.Request)
	}
	e.theirs = id
	e.begin()
	return nil
}

// box is the part of the window that an operation names. Its place says where it begins.
func (a *attachment) box(x *access, mine *form) (box form, err error) {
	if need := x.rights(); need&^a.rights != 0 {
		return box, errs.Invalid("%s: the window of %s may only be read: use one that was exposed with RightWrite", x.record.Value.op, a.remote.Name)
	}
	w := &a.form
	if mine.dtype != w.dtype || mine.rank != w.rank {
		return box, &MismatchError{Op: x.record.Value.op, Peer: a.remote.Name, What: "window", Mine: mine.String(), Theirs: w.String()}
	}
	box = *mine
	box.strides, box.place = w.strides, w.place
	for i := range w.rank {
		if x.at[i] > w.dims[i] || mine.dims[i] > w.dims[i]-x.at[i] {
			return box, errs.Invalid("%s: a part with extents %v at %v leaves the window %s of %s: give a part of it",
				x.record.Value.op, mine.dims[:w.rank], x.at[:w.rank], w, a.remote.Name)
		}
		box.place.Offset += x.at[i] * w.strides[i] * int64(w.dtype.Size())
	}
	return box, nil
}

// rights are what an operation needs.
func (x *access) rights() Rights {
	if x.put {
		return RightWrite
	}
	return RightRead
}

// revoked handles the end of a window.
func (t *windowTable) revoked(r *remote, m *link.Inbound) error {
	for _, a := range t.others {
		if a.remote == r && a.link == r.session && a.known && a.token.window() == slots.ID(m.Header.Request) {
			a.revoked = true
			a.end(r.failure("window", errNoWindow))
			return nil
		}
	}
	r.note(opReleased, m.Header.Request) // this peer has given it up before
	return nil
}

// end ends an attachment: the window was closed, or its owner is lost. Later operations ask the owner again.
func (a *attachment) end(err error) {
	t := &a.remote.peer.windows
	if t.others[a.token] == a {
		delete(t.others, a.token)
		t.ids.Free(a.id)
	}
	for !a.waiting.empty() {
		x := a.waiting.pop()
		x.finish(err)
		x.recycle()
	}
	a.checkUnused()
}

// checkUnused gives the view back once no operation uses it, and says so.
func (a *attachment) checkUnused() {
	if a.remote.peer.windows.others[a.token] == a || a.using > 0 {
		return
	}
	if a.mapped {
		a.mapped = false
		a.view.Release()
	}
	if a.revoked {
		a.revoked = false
		if a.remote.session == a.link {
			a.remote.note(opReleased, uint64(a.token.window()))
		}
	}
}

// fail ends the attachments of a peer whose session is over.
func (t *windowTable) fail(r *remote, cause error) {
	for _, a := range t.others {
		if a.remote == r {
			a.end(r.failure("window", cause))
		}
	}
}

// accessOwn is an operation on a window of this process.
func (t *windowTable) accessOwn(x *access, token *Token) {
	r := x.edge.remote
	mine := x.form()
	w, err := t.find(r, token.window(), token[tokenKey:], x.rights())
	var box tensor.Strided
	if err == nil {
		box, err = w.box(x.at[:mine.rank], &mine)
	}
	theirs := formOf(&box)
	if err == nil && theirs.dtype != mine.dtype {
		err = &MismatchError{Op: x.record.Value.op, Peer: r.Name, What: "window", Mine: mine.String(), Theirs: theirs.String()}
	}
	src, dst := &theirs, &mine
	if x.put {
		src, dst = dst, src
	}
	if err == nil {
		walk, routeErr := route(src, dst)
		if err = routeErr; err == nil {
			err = x.made.fits(&walk)
		}
		if err == nil {
			e := &x.edge
			e.out, e.owner = x.put, x
			e.open()
			e.written.maker = x.made.maker
			if x.put {
				e.written.add(&walk, x.memory(), address(&box))
			} else {
				e.viewed.add(&walk, x.memory(), address(&box))
			}
			x.own = w
			w.edges++
			e.begin()
			return
		}
	}
	x.finish(fmt.Errorf("%s: %w", x.record.Value.op, err))
	x.recycle()
}

// arrived implements edgeOwner.
func (x *access) arrived(e *edge) {
	r, w := e.remote, x.own
	var note []byte
	switch {
	case !x.hasNote:
	case w == nil:
		x.sendNote()
	default:
		note, x.note = x.note, nil
	}
	listens := w != nil && x.hasNote && w.note != nil
	x.finish(nil)
	x.quiet(e)
	if listens { // last: without the lock anything may happen to what was used here
		r.peer.mu.Unlock()
		w.note(r.Rank, note)
		r.peer.mu.Lock()
	}
}

// sendNote sends the note behind the elements, to another peer.
func (x *access) sendNote() {
	r := x.edge.remote
	m := r.message(opNote, uint64(x.to.token.window()))
	if !x.edge.streamed.empty() {
		m.out.Channel = link.ChannelPeerBulk // behind the elements
	}
	m.meta = append(m.meta, x.to.token[tokenKey:]...)
	if len(x.note) > 0 {
		m.small = append(m.small[:0], x.note...)
		m.list = append(m.list, m.small)
	}
	r.send(m)
}

// failed implements edgeOwner.
func (x *access) failed(_ *edge, err error) { x.finish(err) }

// quiet implements edgeOwner.
func (x *access) quiet(e *edge) {
	a, w, using := x.to, x.own, x.using
	e.close()
	x.recycle()
	switch {
	case w != nil:
		w.edges--
		w.checkQuiet()
	case using:
		a.using--
		a.checkUnused()
	}
}

// finish completes the handle.
func (x *access) finish(err error) {
	if x.record == nil {
		return
	}
	r := x.edge.remote
	if err == nil && x.look == nil {
		x.free() // before the handle completes: the program may close the memory at once
	}
	r.peer.results.Finish(x.record, err)
	x.record = nil
	r.stock.outstanding--
}

// recycle takes back an operation that is over.
func (x *access) recycle() {
	x.free()
	x.to, x.own, x.using, x.look = nil, nil, false, nil
	x.edge.remote.peer.spares.accesses.Put(x)
}
