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

// inbox reads the messages of an endpoint. Poll only.
type inbox struct {
	buf    []byte // staging: what was read of rail 0 and not used yet is buf[r:w]
	r, w   int
	phase  phase
	slot   *parts.Slot // takes the message that is being read
	head   [wire.HeaderSize]byte
	dst    [][]byte // where its payload goes
	parts  []span   // of dst: what each rail still has to bring; when drop is set only left counts
	pad    int      // bytes that come before it on rail 0
	drop   bool     // the payload is thrown away
	unread int      // of this Poll's budget of bytes
	flaw   error    // what was wrong before the first header
	first  int      // bytes to read at most where a header is expected
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
	wantBytes  parseStop = iota // read, then parse again
	wantEvents                  // the caller's events are full
	wantCredit                  // all deliveries are out
	wantOut                     // the endpoint ended meanwhile, or the stream is broken
)

// roomForHeads is the space for headers and metas in the staging buffer, beside a small payload.
const roomForHeads = 8 << 10

func (in *inbox) init(small, rails int) {
	in.buf = make([]byte, small+roomForHeads)
	in.first = len(in.buf)
	in.parts = make([]span, rails)
}

// parse uses up what is staged and emits the messages that are whole.
func (rd *reader) parse() (parseStop, error) {
	in := &rd.in
	for {
		switch in.phase {
		case phaseHead:
			if in.w-in.r < wire.HeaderSize {
				return wantBytes, in.checkPrefix()
			}
			if in.slot == nil {
				if in.slot = rd.ep.credits.Take(); in.slot == nil {
					return wantCredit, nil
				}
			}
			if err := rd.parseHead(); err != nil {
				return wantOut, err
			}
		case phaseMeta:
			if !in.takeMeta() {
				return wantBytes, nil
			}
			if err := rd.parseMeta(); err != nil {
				return wantOut, err
			}
			if rd.ep.state.Load()&ended != 0 {
				return wantOut, nil
			}
		case phasePayload:
			if !in.takePayload() {
				return wantBytes, nil
			}
			in.phase = phaseWhole
		case phaseWhole:
			if !rd.deliver() {
				return wantEvents, nil
			}
		}
	}
}

// checkPrefix finds out from the first bytes that they do not begin a header. A peer that does not
// speak this protocol may never send as many bytes as a header has.
func (in *inbox) checkPrefix() error {
	if in.flaw != nil {
		return in.flaw
	}
	return flawOf(in.buf[in.r:in.w])
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
	in := &rd.in
	copy(in.head[:], in.buf[in.r:])
	in.slot.Delivery = van.Delivery{Releaser: in.slot}
	if err := in.slot.Delivery.Header.Decode(in.head[:], rd.ep.v.opts.Limits); err != nil {
		return err
	}
	in.r += wire.HeaderSize
	in.phase = phaseMeta
	return nil
}

// takeMeta moves staged bytes to the meta and reports whether it is whole.
func (in *inbox) takeMeta() bool {
	s := in.slot
	n := min(int(s.Delivery.Header.Meta)-len(s.Bytes), in.w-in.r)
	s.Bytes = append(s.Bytes, in.buf[in.r:in.r+n]...)
	in.r += n
	return len(s.Bytes) == int(s.Delivery.Header.Meta)
}

func (rd *reader) parseMeta() error {
	in := &rd.in
	d := &in.slot.Delivery
	if err := wire.Verify(in.head[:], in.slot.Bytes); err != nil {
		return err
	}
	d.Meta = in.slot.Bytes
	if d.Header.Payload == 0 {
		in.phase = phaseWhole
		return nil
	}
	in.phase = phasePayload
	in.pad = padding(wire.HeaderSize+len(d.Meta), int64(d.Header.Payload))
	return rd.place()
}

// place asks the Placer where the payload goes and splits it over the rails.
func (rd *reader) place() error {
	in := &rd.in
	d := &in.slot.Delivery
	rd.ep.leave(reading) // the Placer may close the endpoint
	dst, err := parts.Place(rd.ep.v.opts.Placer, rd.ep, d, in.dst[:0])
	in.dst, in.drop = dst, d.Refused != nil
	if !rd.ep.enter(reading) {
		return nil
	}
	if err != nil {
		return err
	}
	for i := range in.parts {
		from, to := share(int64(d.Header.Payload), rd.ep.threshold, len(in.parts), i)
		if in.drop {
			in.parts[i] = span{left: to - from}
		} else {
			in.parts[i] = spanOf(in.dst, from, to)
		}
	}
	return nil
}

// takePayload moves staged bytes to where rail 0's part goes and reports whether all parts are complete.
func (in *inbox) takePayload() bool {
	p := &in.parts[0]
	skipped := min(in.pad, in.w-in.r)
	in.r, in.pad = in.r+skipped, in.pad-skipped
	n := int(min(p.left, int64(in.w-in.r)))
	if !in.drop {
		p.at.Scatter(in.dst, in.buf[in.r:in.r+n])
	}
	p.left -= int64(n)
	in.r += n
	for i := range in.parts {
		if in.parts[i].left > 0 {
			return false
		}
	}
	return true
}

// deliver emits the message that is whole; false when there is no room for it.
func (rd *reader) deliver() bool {
	in := &rd.in
	if !rd.ep.v.poller.emit(van.Event{Kind: van.EventMessage, Endpoint: rd.ep, Delivery: &in.slot.Delivery}) {
		return false
	}
	in.sizeNextRead(&in.slot.Delivery.Header)
	in.slot = nil
	clear(in.dst)
	in.phase = phaseHead
	return true
}

// sizeNextRead sets how much to read where the next header is expected. Another large message
// often follows a large one. The read then takes only head and meta, so that
// the payload is not staged and copied.
func (in *inbox) sizeNextRead(h *wire.Header) {
	in.first = len(in.buf)
	if small := len(in.buf) - roomForHeads; h.Payload > uint64(small) {
		head := wire.HeaderSize + int(h.Meta)
		in.first = min(in.first, head+padding(head, int64(h.Payload)))
	}
}

// fill reads from rail i once, as far as possible to where the bytes belong.
func (rd *reader) fill(i int) (n int, short bool, e syscall.Errno) {
	in, v, fd, part := &rd.in, rd.ep.v, rd.ep.rails[i].fd, &rd.in.parts[i]
	if i == 0 {
		in.compact()
		if in.phase == phasePayload && in.pad > 0 {
			return in.fillPad(fd)
		}
	}
	iov := v.poller.iov[:0]
	asked := 0
	staged := true // the staging buffer may be read into behind what comes first
	switch {
	case in.phase == phaseMeta:
		s := in.slot
		left := int(s.Delivery.Header.Meta) - len(s.Bytes)
		// Memory follows the bytes that come, not the announcement.
		s.Bytes = slices.Grow(s.Bytes, min(left, parts.MaxKeptBytes))
		room := s.Bytes[len(s.Bytes):cap(s.Bytes)]
		room = room[:min(left, len(room))]
		iov, asked = append(iov, sys.Iovec(room)), len(room)
		staged = asked == left
	case in.phase == phasePayload && in.drop:
		asked = int(min(part.left, int64(len(v.poller.scratch))))
		iov = append(iov, sys.Iovec(v.poller.scratch[:asked]))
		staged = false
	case in.phase == phasePayload:
		iov, asked = part.gather(iov, in.dst, in.unread)
		staged = int64(asked) == part.left
	}
	first := asked
	if staged && i == 0 {
		room := in.buf[in.w:]
		if in.phase == phaseHead && in.w < in.first {
			room = in.buf[in.w:in.first]
		}
		iov = append(iov, sys.Iovec(room))
		asked += len(room)
	}
	if len(iov) == 1 && first == 0 {
		n, e = sys.Recv(fd, in.buf[in.w:in.w+asked], 0)
	} else {
		n, e = sys.Readv(fd, iov)
		clear(iov)
	}
	if e != 0 {
		return 0, true, e
	}
	in.unread -= n
	in.arrived(i, min(n, first))
	in.w += max(0, n-first)
	return n, n < asked, 0
}

// fillPad reads padding alone, which mostly comes with the head.
func (in *inbox) fillPad(fd int) (n int, short bool, e syscall.Errno) {
	n, e = sys.Recv(fd, in.buf[:in.pad], 0)
	in.w = max(0, n)
	return n, false, e
}

// arrived counts n bytes of rail i that were read straight to where they belong.
func (in *inbox) arrived(i, n int) {
	switch {
	case n == 0:
	case in.phase == phaseMeta:
		s := in.slot
		s.Bytes = s.Bytes[:len(s.Bytes)+n]
	case in.drop:
		in.parts[i].left -= int64(n)
	default:
		in.parts[i].skip(in.dst, n)
	}
}

// compact makes room in the staging buffer.
func (in *inbox) compact() {
	if in.r == in.w {
		in.r, in.w = 0, 0
		return
	}
	if in.r > 0 {
		in.w = copy(in.buf, in.buf[in.r:in.w])
		in.r = 0
	}
}

// lossOf is the reason of a stream that ended (e == 0) or broke.
func (rd *reader) lossOf(e syscall.Errno) error {
	switch {
	case e != 0:
		return explain(e, rd.in.dst)
	case rd.in.midway():
		return fmt.Errorf("%w: closed in the middle of a message: %w", stepvan.ErrPeerLost, io.ErrUnexpectedEOF)
	}
	return parts.ErrClosedByPeer
}
