package tcpvan

import (
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"syscall"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/sys"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
	"github.com/stepvan/stepvan/van/parts"
)

// reader receives the messages of an endpoint. Poll only.
type reader struct {
	ep        *endpoint
	buf       []byte // staging: what was read of rail 0 and not used yet is buf[r:w]
	r, w      int
	phase     phase
	slot      *parts.Slot // takes the message that is being read
	head      [wire.HeaderSize]byte
	dst       [][]byte // where its payload goes
	shares    []span   // of dst: what each rail still has to bring; when drop is set only left counts
	pad       int      // bytes of padding that still come before the payload on rail 0
	drop      bool     // the payload is thrown away
	budget    int      // bytes that this Poll may still read
	flaw      error    // what was wrong before the first header
	headBound int      // the most to stage where a header is expected
	stall
}

// phase is what of a message is expected next.
type phase uint8

const (
	phaseHead phase = iota
	phaseMeta
	phasePayload
	phaseWhole // waits for room among the events
)

// parseStop is why parsing stopped.
type parseStop uint8

const (
	needBytes parseStop = iota // read, then parse again
	needRoom                   // the caller's events are full
	needSlot                   // all deliveries are out
	stopped                    // the endpoint ended meanwhile, or the stream is broken
)

// roomForHeads is the space for headers and metas in the staging buffer, beside a small payload.
const roomForHeads = 8 << 10

func (rd *reader) init(small, rails int) {
	rd.buf = make([]byte, small+roomForHeads)
	rd.headBound = len(rd.buf)
	rd.shares = make([]span, rails)
}

// readBound is the number of bytes that one Poll reads from one endpoint, so that
// a fast peer does not keep the others waiting.
const readBound = 2 << 20

// parse uses up what is staged and emits the messages that are whole.
func (rd *reader) parse() (parseStop, error) {
	for {
		switch rd.phase {
		case phaseHead:
			if rd.w-rd.r < wire.HeaderSize {
				return needBytes, rd.checkPrefix()
			}
			if rd.slot == nil {
				if rd.slot = rd.ep.credits.Take(); rd.slot == nil {
					return needSlot, nil
				}
			}
			if err := rd.parseHead(); err != nil {
				return stopped, err
			}
		case phaseMeta:
			if !rd.takeMeta() {
				return needBytes, nil
			}
			if err := rd.parseMeta(); err != nil {
				return stopped, err
			}
			if rd.ep.state.Load()&ended != 0 {
				return stopped, nil
			}
		case phasePayload:
			if !rd.takePayload() {
				return needBytes, nil
			}
			rd.phase = phaseWhole
		case phaseWhole:
			if !rd.deliver() {
				return needRoom, nil
			}
		}
	}
}

// checkPrefix finds out from the first bytes that they do not begin a header. A peer that does not
// speak this protocol may never send as many bytes as a header has.
func (rd *reader) checkPrefix() error {
	if rd.flaw != nil {
		return rd.flaw
	}
	return flawOf(rd.buf[rd.r:rd.w])
}

// flawOf is what is wrong with the first bytes of a header, as far as they tell.
func flawOf(b []byte) error {
	if startsWith(b, wire.Magic) && len(b) < versionEnd {
		return nil
	}
	if len(b) >= versionEnd && binary.LittleEndian.Uint32(b) == wire.Magic && binary.LittleEndian.Uint16(b[4:]) == wire.Version {
		return nil
	}
	var whole [wire.HeaderSize]byte
	copy(whole[:], b)
	return new(wire.Header).Decode(whole[:], wire.DefaultLimits)
}

// versionEnd is where the part of the header ends that keeps its place in every version.
const versionEnd = 6

func (rd *reader) parseHead() error {
	copy(rd.head[:], rd.buf[rd.r:])
	rd.slot.Delivery = van.Delivery{Releaser: rd.slot}
	if err := rd.slot.Delivery.Header.Decode(rd.head[:], rd.ep.v.opts.Limits); err != nil {
		return err
	}
	rd.r += wire.HeaderSize
	rd.phase = phaseMeta
	return nil
}

// takeMeta moves staged bytes to the meta and reports whether it is whole.
func (rd *reader) takeMeta() bool {
	s := rd.slot
	n := min(int(s.Delivery.Header.Meta)-len(s.Bytes), rd.w-rd.r)
	s.Bytes = append(s.Bytes, rd.buf[rd.r:rd.r+n]...)
	rd.r += n
	return len(s.Bytes) == int(s.Delivery.Header.Meta)
}

func (rd *reader) parseMeta() error {
	d := &rd.slot.Delivery
	if err := wire.Verify(rd.head[:], rd.slot.Bytes); err != nil {
		return err
	}
	if d.Header.Payload == 0 {
		d.Meta, rd.phase = rd.slot.Bytes, phaseWhole
		return nil
	}
	rd.phase = phasePayload
	rd.pad = padding(wire.HeaderSize+len(rd.slot.Bytes), int64(d.Header.Payload))
	if d.Header.Payload == d.Header.Total && d.Header.Payload <= uint64(rd.ep.v.opts.InMessage) {
		rd.keep()
		rd.split()
		return nil
	}
	d.Meta = rd.slot.Bytes
	return rd.place()
}

// keep has the slot take the payload.
func (rd *reader) keep() {
	d, meta := &rd.slot.Delivery, len(rd.slot.Bytes)
	whole := meta + int(d.Header.Payload)
	rd.slot.Bytes = slices.Grow(rd.slot.Bytes, whole-meta)[:whole]
	d.Meta, d.Payload = rd.slot.Bytes[:meta:meta], rd.slot.Bytes[meta:]
	rd.dst, rd.drop = append(rd.dst[:0], d.Payload), false
}

// place asks the Placer where the payload goes.
func (rd *reader) place() error {
	d := &rd.slot.Delivery
	rd.ep.leave(reading) // the Placer may close the endpoint
	dst, err := parts.Place(rd.ep.v.opts.Placer, rd.ep, d, rd.dst[:0])
	rd.dst, rd.drop = dst, d.Refused != nil
	if !rd.ep.enter(reading) {
		return nil
	}
	if err != nil {
		return err
	}
	rd.split()
	return nil
}

// split says what of the payload each rail brings.
func (rd *reader) split() {
	for i := range rd.shares {
		from, to := share(int64(rd.slot.Delivery.Header.Payload), rd.ep.threshold, len(rd.shares), i)
		if rd.drop {
			rd.shares[i] = span{left: to - from}
		} else {
			rd.shares[i] = spanOf(rd.dst, from, to)
		}
	}
}

// takePayload moves staged bytes to where rail 0's part goes and reports whether all parts are complete.
func (rd *reader) takePayload() bool {
	p := &rd.shares[0]
	skipped := min(rd.pad, rd.w-rd.r)
	rd.r, rd.pad = rd.r+skipped, rd.pad-skipped
	n := int(min(p.left, int64(rd.w-rd.r)))
	if !rd.drop {
		p.at.Scatter(rd.dst, rd.buf[rd.r:rd.r+n])
	}
	p.left -= int64(n)
	rd.r += n
	for i := range rd.shares {
		if rd.shares[i].left > 0 {
			return false
		}
	}
	return true
}

// deliver emits the message that is whole; false when there is no room for it.
func (rd *reader) deliver() bool {
	if !rd.ep.v.poller.emit(van.Event{Kind: van.EventMessage, Endpoint: rd.ep, Delivery: &rd.slot.Delivery}) {
		return false
	}
	rd.sizeNextRead(&rd.slot.Delivery.Header)
	rd.slot = nil
	clear(rd.dst)
	rd.phase = phaseHead
	return true
}

// sizeNextRead sets how much to read where the next header is expected. Another large message
// often follows a large one. The read then takes only head and meta, so that
// the payload is not staged and copied.
func (rd *reader) sizeNextRead(h *wire.Header) {
	rd.headBound = len(rd.buf)
	if small := len(rd.buf) - roomForHeads; h.Payload > uint64(small) {
		head := wire.HeaderSize + int(h.Meta)
		rd.headBound = min(rd.headBound, head+padding(head, int64(h.Payload)))
	}
}

// readRail reads from rail i once, as far as possible to where the bytes belong.
func (rd *reader) readRail(i int) (n int, short bool, e syscall.Errno) {
	v, fd, rest := rd.ep.v, rd.ep.rails[i].fd, &rd.shares[i]
	if i == 0 {
		rd.compact()
		if rd.phase == phasePayload && rd.pad > 0 {
			return rd.readPad(fd)
		}
	}
	iov := v.poller.iov[:0]
	asked := 0
	stage := true // what follows goes to the staging buffer, in the same call
	switch {
	case rd.phase == phaseMeta:
		s := rd.slot
		left := int(s.Delivery.Header.Meta) - len(s.Bytes)
		// Memory grows with the bytes that come, not with what the header promises.
		s.Bytes = slices.Grow(s.Bytes, min(left, parts.MaxKeptBytes))
		room := s.Bytes[len(s.Bytes):cap(s.Bytes)]
		room = room[:min(left, len(room))]
		iov, asked = append(iov, sys.Iovec(room)), len(room)
		stage = asked == left
	case rd.phase == phasePayload && rd.drop:
		asked = int(min(rest.left, int64(len(v.poller.scratch))))
		iov = append(iov, sys.Iovec(v.poller.scratch[:asked]))
		stage = false
	case rd.phase == phasePayload:
		iov, asked = rest.gather(iov, rd.dst, rd.budget)
		stage = int64(asked) == rest.left
	}
	first := asked
	if stage && i == 0 {
		room := rd.buf[rd.w:]
		if rd.phase == phaseHead && rd.w < rd.headBound {
			room = rd.buf[rd.w:rd.headBound]
		}
		iov = append(iov, sys.Iovec(room))
		asked += len(room)
	}
	if len(iov) == 1 && first == 0 {
		n, e = sys.Recv(fd, rd.buf[rd.w:rd.w+asked], 0)
	} else {
		n, e = sys.Readv(fd, iov)
		clear(iov)
	}
	if e != 0 {
		return 0, true, e
	}
	rd.budget -= n
	rd.arrived(i, min(n, first))
	rd.w += max(0, n-first)
	return n, n < asked, 0
}

// readPad reads padding alone, which mostly comes with the head.
func (rd *reader) readPad(fd int) (n int, short bool, e syscall.Errno) {
	n, e = sys.Recv(fd, rd.buf[:rd.pad], 0)
	rd.w = max(0, n)
	return n, false, e
}

// arrived counts n bytes of rail i that were read straight to where they belong.
func (rd *reader) arrived(i, n int) {
	switch {
	case n == 0:
	case rd.phase == phaseMeta:
		s := rd.slot
		s.Bytes = s.Bytes[:len(s.Bytes)+n]
	case rd.drop:
		rd.shares[i].left -= int64(n)
	default:
		rd.shares[i].skip(rd.dst, n)
	}
}

// compact makes room in the staging buffer.
func (rd *reader) compact() {
	if rd.r == rd.w {
		rd.r, rd.w = 0, 0
		return
	}
	if rd.r > 0 {
		rd.w = copy(rd.buf, rd.buf[rd.r:rd.w])
		rd.r = 0
	}
}

// lossOf is the reason of a stream that ended (e == 0) or broke.
func (rd *reader) lossOf(e syscall.Errno) error {
	switch {
	case e != 0:
		return explain(e, rd.dst)
	case rd.midway():
		return fmt.Errorf("%w: closed in the middle of a message: %w", stepvan.ErrPeerLost, io.ErrUnexpectedEOF)
	}
	return parts.ErrClosedByPeer
}

// receive has read do its work, unless the endpoint has ended, and loses the endpoint on an error. It reports whether
// the next Poll should continue.
func (rd *reader) receive() (more bool) {
	if !rd.ep.enter(reading) {
		return false
	}
	rd.budget, rd.waits = readBound, false
	more, err := rd.read()
	rd.ep.leave(reading)
	if err != nil {
		rd.ep.lose(err)
	}
	return more
}

// read parses what is staged and reads more, until the budget is used, the sockets are empty, or room or a slot is
// missing. It reports whether the next Poll should continue.
func (rd *reader) read() (more bool, err error) {
	for {
		why, err := rd.parse()
		if err != nil || why == stopped {
			return false, err
		}
		if why == needRoom {
			return true, nil
		}
		if why == needSlot {
			return false, nil // the first Release notes the endpoint
		}
		if rd.budget <= 0 {
			return true, nil
		}
		read, err := rd.readRails()
		if err != nil {
			return false, err
		}
		if !read {
			rd.noteWait()
			rd.checkRails()
			return false, nil
		}
	}
}

// readRails reads once from every rail that has something, and reports whether any had.
func (rd *reader) readRails() (read bool, err error) {
	for i, c := range rd.ep.rails {
		if !c.readable || !rd.wants(i) {
			continue
		}
		if rd.budget <= 0 {
			return true, nil
		}
		n, short, e := rd.readRail(i)
		switch {
		case e == sys.Again:
			c.readable = false
			continue
		case e != 0 || n == 0:
			return false, rd.lossOf(e)
		case short && !c.hup:
			c.readable = false // a stream that gave less than asked is empty
		}
		rd.ep.v.poller.countMove(rd.ep)
		rd.got += uint64(n)
		read = true
	}
	return read, nil
}

// wants reports whether rail i has something to bring in this phase.
func (rd *reader) wants(i int) bool {
	if rd.phase != phasePayload {
		return i == 0
	}
	return rd.shares[i].left > 0
}
