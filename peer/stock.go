package peer

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/strided"
	"github.com/stepvan/stepvan/tensor"
)

// stock has the transfers with a peer that wait for their partner: receives without a message, and messages without a
// receive. Peer.mu guards it.
type stock struct {
	remote      *remote
	posted      map[Tag]queue[transfer, *transfer]
	came        map[Tag]queue[arrival, *arrival]
	outstanding int // transfers that have not completed
	toldCount   int // transfers that this side has told, and whose receives it has not heard of
	waiting     int // transfers that the peer has told, and that have no receive
	offers      int // transfers that the peer has offered, and that have no receive
	matched     int // receives of those that the peer has not heard of
}

// arrival is a message that waits for its receive.
type arrival struct {
	next   *arrival
	whole  bool      // it has the elements; else it is an offer
	bytes  []byte    // the elements
	theirs uint64    // number of the offer at its sender
	form   form      // what comes
	local  *transfer // a send of this process
}

func (a *arrival) following() **arrival { return &a.next }

const (
	// maxTold bounds the small transfers of a peer that wait for their receive.
	maxTold = 4096
	// reportTold is after how many receives their sender hears of them.
	reportTold = maxTold / 8
	// maxOffers bounds the large transfers of a peer that wait for their receive.
	maxOffers = 1 << 16
)

func (s *stock) init(r *remote) {
	s.remote = r
	s.posted = map[Tag]queue[transfer, *transfer]{}
	s.came = map[Tag]queue[arrival, *arrival]{}
}

// checkRoom refuses a transfer when too many are outstanding.
func (s *stock) checkRoom(op string) error {
	if s.outstanding < s.remote.peer.opt.Outstanding && s.toldCount < maxTold {
		return nil
	}
	return &stepvan.OpError{Op: op, Peer: s.remote.Name, Err: fmt.Errorf(
		"%d transfers are outstanding: wait for a handle: %w", max(s.outstanding, s.toldCount), stepvan.ErrWouldBlock)}
}

// receive matches a receive with the first message that has come for it, or has it wait.
func (s *stock) receive(t *transfer) {
	q, ok := s.came[t.tag]
	if !ok {
		t.record.Value.posted = t
		w := s.posted[t.tag]
		w.push(t)
		s.posted[t.tag] = w
		return
	}
	a := q.pop()
	if q.empty() {
		delete(s.came, t.tag)
	} else {
		s.came[t.tag] = q
	}
	s.match(t, a)
	if a.whole {
		s.waiting--
	} else if a.local == nil {
		s.offers--
	}
	s.putArrival(a)
}

// putArrival takes back an arrival that is over. It keeps its memory.
func (s *stock) putArrival(a *arrival) {
	*a = arrival{bytes: a.bytes[:0]}
	s.remote.peer.spares.arrivals.Put(a)
}

// unpost takes back a receive that waits.
func (s *stock) unpost(t *transfer) bool {
	q := s.posted[t.tag]
	found := q.remove(t)
	if q.empty() {
		delete(s.posted, t.tag)
	} else {
		s.posted[t.tag] = q
	}
	return found
}

// takePosted takes the first receive that waits for a tag, or returns nil.
func (s *stock) takePosted(tag Tag) *transfer {
	q, ok := s.posted[tag]
	if !ok {
		return nil
	}
	t := q.pop()
	if q.empty() {
		delete(s.posted, tag)
	} else {
		s.posted[tag] = q
	}
	t.record.Value.posted = nil
	return t
}

// keep has a copy of a message wait for its receive.
func (s *stock) keep(tag Tag, a *arrival) {
	w := s.remote.peer.spares.arrivals.Take()
	w.whole, w.theirs, w.form, w.local = a.whole, a.theirs, a.form, a.local
	w.bytes = append(w.bytes, a.bytes...)
	q := s.came[tag]
	q.push(w)
	s.came[tag] = q
}

// small handles a transfer that comes with its elements.
func (s *stock) small(m *link.Inbound) error {
	d := decode(m.Meta)
	tag, dtype := Tag(d.u64()), tensor.DType(d.u8())
	if err := d.end(); err != nil {
		return err
	}
	if n := m.Header.Total; !dtype.Valid() || n > tellBytes || n%uint64(dtype.Size()) != 0 {
		return errs.Protocol("total", 88, "a small transfer has %d bytes of type %d", n, dtype)
	}
	a := arrival{whole: true, bytes: m.Payload}
	a.form = form{dtype: dtype, rank: 1}
	a.form.dims[0], a.form.strides[0] = int64(m.Header.Total)/int64(dtype.Size()), 1
	if t := s.takePosted(tag); t != nil {
		s.match(t, &a)
		return nil
	}
	if s.waiting++; s.waiting > 2*maxTold {
		return errs.Protocol("op", 7, "%d small transfers of a peer wait for their receive, limit %d", s.waiting, 2*maxTold)
	}
	s.keep(tag, &a)
	return nil
}

// wereTaken handles the news that receives have taken small transfers.
func (s *stock) wereTaken(m *link.Inbound) error {
	n := int(m.Header.Generation)
	if n > s.toldCount {
		return errs.Protocol("generation", 64, "%d receives of %d transfers", n, s.toldCount)
	}
	s.toldCount -= n
	return nil
}

// offered handles a transfer whose elements follow.
func (s *stock) offered(m *link.Inbound) error {
	d := decode(m.Meta)
	tag, f := Tag(d.u64()), d.form()
	if err := d.end(); err != nil {
		return err
	}
	if m.Header.Request == 0 {
		return errs.Protocol("request", 56, "an offer has no number")
	}
	a := arrival{theirs: m.Header.Request, form: f}
	if t := s.takePosted(tag); t != nil {
		s.match(t, &a)
		return nil
	}
	if s.offers++; s.offers > maxOffers {
		return errs.Protocol("op", 7, "more than %d transfers of a peer wait for their receive", maxOffers)
	}
	s.keep(tag, &a)
	return nil
}

// matchLocal matches a send to this very process with the first receive for it, or has it wait.
func (s *stock) matchLocal(t *transfer) {
	e := &t.edge
	e.remote, e.out, e.owner = s.remote, true, t
	e.open()
	e.state, e.missing = edgeRunning, stepNote
	a := arrival{local: t, form: formOf(&t.view)}
	if recv := s.takePosted(t.tag); recv != nil {
		s.match(recv, &a)
		return
	}
	s.keep(t.tag, &a)
}

// match begins the transfer of a to the receive t.
func (s *stock) match(t *transfer, a *arrival) {
	mine := formOf(&t.view)
	if a.whole {
		s.receiveWhole(t, a, &mine)
		return
	}
	w, err := s.route(t, a, &mine)
	if err != nil {
		s.refuse(t, a, &mine, err)
		return
	}
	e := &t.edge
	e.remote, e.out, e.owner = s.remote, false, t
	e.open()
	e.theirs = a.theirs
	var theirs unsafe.Pointer
	if a.local != nil {
		t.partner, theirs = a.local, address(&a.local.view)
		a.local.edge.busy++
		if a.form.bytes() == 0 {
			t.leavePartner(stepNote) // there is nothing to copy
		}
	} else {
		theirs = e.see(&a.form, link.RightRead)
	}
	if theirs != nil || a.local != nil {
		e.viewed.add(&w, address(&t.view), theirs)
		e.begin()
		return
	}
	s.accept(t, &w, &mine)
}

// route makes the walk from a message to its receive, if the two fit each other.
func (s *stock) route(t *transfer, a *arrival, mine *form) (strided.Walk, error) {
	if a.form.dtype != mine.dtype || a.form.bytes() != mine.bytes() {
		return strided.Walk{}, s.mismatch("recv", t.tag, mine, &a.form)
	}
	return route(&a.form, mine)
}

// accept asks the sender for the elements.
func (s *stock) accept(t *transfer, w *strided.Walk, mine *form) {
	e, r := &t.edge, s.remote
	mine.place = r.reach(&t.view, link.RightWrite)
	m := r.message(opAccept, e.theirs)
	m.meta = binary.LittleEndian.AppendUint64(m.meta, uint64(e.id))
	m.meta = mine.append(m.meta)
	if mine.place.IsZero() {
		e.streamed.add(w, address(&t.view), nil)
	} else {
		e.written.add(w, address(&t.view), nil)
	}
	e.begin()
	r.send(m)
}

// receiveWhole ends a transfer that came with its elements.
func (s *stock) receiveWhole(t *transfer, a *arrival, mine *form) {
	if s.matched++; s.matched == reportTold {
		m := s.remote.message(opTaken, 0)
		m.out.Generation = uint32(s.matched)
		s.remote.send(m)
		s.matched = 0
	}
	var err error
	if a.form.dtype != mine.dtype || a.form.bytes() != mine.bytes() {
		err = s.mismatch("recv", t.tag, mine, &a.form)
	} else if len(a.bytes) > 0 {
		unpackView(&t.view, a.bytes)
	}
	t.finish(err)
	t.recycle(s.remote.peer)
}

func (s *stock) mismatch(op string, tag Tag, mine, theirs *form) error {
	return &MismatchError{Op: op, Peer: s.remote.Name, What: fmt.Sprintf("tag %d", tag), Mine: mine.String(), Theirs: theirs.String()}
}

// refuse fails both sides of a transfer that do not fit each other.
func (s *stock) refuse(t *transfer, a *arrival, mine *form, err error) {
	if a.local != nil {
		a.local.edge.fail(s.mismatch("send", t.tag, &a.form, mine))
	} else {
		m := s.remote.message(opRefuse, a.theirs)
		m.meta = mine.append(m.meta)
		s.remote.send(m)
	}
	t.finish(err)
	t.recycle(s.remote.peer)
}

// fail ends everything that waits.
func (s *stock) fail(cause error) {
	p := s.remote.peer
	for tag, q := range s.posted {
		for delete(s.posted, tag); !q.empty(); {
			t := q.pop()
			t.finish(s.remote.failure("recv", cause))
			t.recycle(p)
		}
	}
	for tag, q := range s.came {
		for delete(s.came, tag); !q.empty(); {
			s.putArrival(q.pop())
		}
	}
	s.toldCount, s.waiting, s.offers, s.matched = 0, 0, 0, 0
}

// accepted handles the answer to an offer: the elements may come.
func (t *edgeTable) accepted(r *remote, m *link.Inbound) error {
	e, x, err := t.offer(r, m)
	if e == nil {
		return err
	}
	d := decode(m.Meta)
	id, theirs := d.u64(), d.form()
	if err := d.end(); err != nil {
		return err
	}
	mine := formOf(&x.view)
	w, err := route(&mine, &theirs)
	if err != nil || theirs.dtype != mine.dtype || theirs.bytes() != mine.bytes() || id == 0 {
		return errs.Protocol("form", 8, "%s accepts an offer of %s", &theirs, &mine)
	}
	e.theirs = id
	if theirs.place.IsZero() {
		e.streamed.add(&w, address(&x.view), nil)
	} else {
		to := e.see(&theirs, link.RightWrite)
		if to == nil {
			e.fail(r.failure("send", fmt.Errorf("this process cannot map the memory of the receiver: %w", stepvan.ErrNotSupported)))
			return nil
		}
		e.written.add(&w, address(&x.view), to)
	}
	e.begin()
	return nil
}

// refused handles the answer to an offer that does not fit its receive.
func (t *edgeTable) refused(r *remote, m *link.Inbound) error {
	e, x, err := t.offer(r, m)
	if e == nil {
		return err
	}
	d := decode(m.Meta)
	theirs := d.form()
	if err := d.end(); err != nil {
		return err
	}
	mine := formOf(&x.view)
	e.fail(r.stock.mismatch("send", x.tag, &mine, &theirs))
	return nil
}

// offer finds the transfer of an offer that waits for its answer.
func (t *edgeTable) offer(r *remote, m *link.Inbound) (*edge, *transfer, error) {
	e, err := t.find(r, m)
	if err != nil || e == nil || e.state >= edgeFailed {
		return nil, nil, err
	}
	x, ok := e.owner.(*transfer)
	if !ok || !e.out || e.theirs != 0 || e.state != edgeRunning {
		return nil, nil, errs.Protocol("request", 56, "a peer answers %#x, which is not an offer", m.Header.Request)
	}
	return e, x, nil
}
