package rdma

import (
	"encoding/binary"
	"math"
	"runtime"
	"time"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/verbs"
	"github.com/stepvan/stepvan/van"
)

// A payload in registered memory that has no target is fetched: the message says where it is, and the device of the
// receiver reads it into what the Placer names. In place of the payload this list travels with the head:
//
//	| address u64 | length u64 | key u32 | zero u32 | further keys u32 each | for each segment
//
// The keys are as in a grant.
const (
	sourceBytes = 24
	maxSources  = 64
)

// sourceSize is the size of a source with so many keys.
func sourceSize(keys int) int { return sourceBytes + (keys-1)*keyBytes }

// source is a segment of a payload at the peer.
type source struct {
	address, length uint64
	key             verbs.RemoteKey
}

// offer has the peer fetch the payload of a message, if all of it is registered and worth the round trip.
func (o *operation) offer(s *sender, m *van.Message) {
	if !s.fetches || len(m.Target) > 0 || m.Spare != nil || o.size <= int64(s.e.v.opt.FetchBytes) || len(m.Payload) > maxSources {
		return
	}
	o.list = o.list[:0]
	for _, b := range m.Payload {
		if len(b) == 0 {
			continue
		}
		r := s.e.v.regions.find(b)
		if r == nil {
			o.releaseRegions(&s.e.v.regions)
			return
		}
		o.writes = append(o.writes, write{region: r})
		le := binary.LittleEndian
		o.list = le.AppendUint64(o.list, uint64(addressOf(b)))
		o.list = le.AppendUint64(o.list, uint64(len(b)))
		o.list = le.AppendUint32(o.list, uint32(r.keys[s.firstDevice()].RemoteKey()))
		o.list = le.AppendUint32(o.list, 0)
		for i := 1; i < s.keys; i++ {
			o.list = le.AppendUint32(o.list, uint32(r.keys[i].RemoteKey()))
		}
	}
	clear(o.payload)
	o.payload = append(o.payload[:0], o.list)
	o.size, o.left = int64(len(o.list)), int64(len(o.list))
	o.next = len(o.writes)
	s.offered++
	o.fetch, o.offered = true, s.offered
}

// takeFetched takes the peer's count of the payloads that it has fetched, or refused. endpoint.mu is held.
func (s *sender) takeFetched(count uint32) error {
	if int32(count-s.ops.fetched) <= 0 {
		return nil
	}
	if int32(count-s.offered) > 0 {
		return errs.Protocol("slot", 20, "%d payloads are said to be fetched (want at most %d)", count, s.offered)
	}
	s.ops.fetched = count
	s.completeOps()
	return nil
}

// fetch is a payload that is on its way in. The poller's, except until, read and unstaged with their uses, which
// endpoint.mu guards.
type fetch struct {
	rail    *rail // that reads
	sources []source
	first   int // of sources, that is not all read
	staged  []staged
	regions []*region // of the destination
	until   uint32    // the last read
	reading bool      // reads are under way

	// Bytes so far, over all payloads.
	read     uint64
	unstaged uint64 // of those, that were read into buffers
}

// staged is a part that is read into a buffer, since its destination is not registered.
type staged struct{ buffer, n int }

// begin reads the list of sources, which together have size bytes. Each takes so many bytes in the list, and its key is
// at keyAt.
func (f *fetch) begin(b []byte, size uint64, each, keyAt int) error {
	le := binary.LittleEndian
	f.sources, f.first = f.sources[:0], 0
	if len(b) == 0 || len(b)%each != 0 || len(b) > maxSources*each {
		return errs.Protocol("sources", 0, "%d bytes", len(b))
	}
	left := size
	for ; len(b) > 0; b = b[each:] {
		x := source{le.Uint64(b), le.Uint64(b[8:]), verbs.RemoteKey(le.Uint32(b[keyAt:]))}
		if x.length == 0 || x.length > left || x.address > math.MaxUint64-x.length {
			return errs.Protocol("sources", 8, "%d bytes at %#x of a payload with %d left", x.length, x.address, left)
		}
		left -= x.length
		f.sources = append(f.sources, x)
	}
	if left > 0 {
		return errs.Protocol("sources", 0, "%d bytes of the payload are missing", left)
	}
	return nil
}

// advance reads what it can, and reports whether all of the payload is in its place.
func (f *fetch) advance(r *receiver) (whole bool) {
	r.e.mu.Lock()
	defer r.e.mu.Unlock()
	if r.e.state.Load()&failed != 0 {
		return false
	}
	for {
		if f.waits() {
			return false
		}
		if f.isLost() {
			if err := f.restart(r); err != nil {
				r.e.fail("receive", err)
				return false
			}
			if f.rail == nil {
				return false
			}
		}
		f.reading = false
		f.unstage(r)
		if f.first == len(f.sources) {
			return true
		}
		if !f.post(r) {
			return false
		}
	}
}

// waits reports whether reads are under way, whose completion will wake the driver. endpoint.mu is held.
func (f *fetch) waits() bool {
	if f.rail == nil {
		return true // the loss of the endpoint is under way
	}
	return f.reading && !f.rail.loss.shut.Load() && int32(f.rail.queue.requests.retired-f.until) < 0
}

// isLost reports whether the rest cannot be read over the rail that was chosen.
func (f *fetch) isLost() bool {
	return f.rail.loss.begun.Load() && (f.first < len(f.sources) || f.reading && int32(f.rail.queue.requests.retired-f.until) < 0)
}

// restart reads everything again over another rail, since the one that reads was lost. endpoint.mu is held.
func (f *fetch) restart(r *receiver) error {
	a := &r.arrival
	f.staged = f.staged[:0]
	f.unstage(r)
	f.reading = false
	if f.rail = r.e.rails.anyUsable(); f.rail == nil {
		return nil
	}
	a.at = van.Cursor{}
	return a.beginFetch(r)
}

// unstage copies what was read into buffers to where it belongs.
func (f *fetch) unstage(r *receiver) {
	q := &f.rail.queue
	for _, x := range f.staged {
		r.arrival.at.Scatter(r.arrival.dst, q.buffer(x.buffer)[:x.n])
		q.buffers.release(x.buffer)
		f.unstaged += uint64(x.n)
	}
	f.staged = f.staged[:0]
	for _, g := range f.regions {
		r.e.v.regions.release(g)
	}
	clear(f.regions)
	f.regions = f.regions[:0]
}

// post posts as many reads as there is room for. Those into the destination and those into buffers do not mix, so that
// both go in order. false: there is no room.
func (f *fetch) post(r *receiver) bool {
	q := &f.rail.queue
	var last verbs.Request
	var into verbs.Segment
	for f.first < len(f.sources) && q.requests.room() > 0 {
		seg, ok := f.next(r)
		if !ok {
			break
		}
		if into.Length > 0 {
			q.add(last, false, into)
		}
		x := &f.sources[f.first]
		last, into = verbs.Request{Op: verbs.OpRead, Remote: x.address, Key: x.key}, seg
		f.read += uint64(seg.Length)
		x.address, x.length = x.address+uint64(seg.Length), x.length-uint64(seg.Length)
		if x.length == 0 {
			f.first++
		}
		if q.requests.room() <= 1 {
			break
		}
	}
	if into.Length == 0 {
		return false
	}
	doubtful := q.conn.device.doubtsReads()
	if f.until, _ = q.add(last, !doubtful, into); doubtful {
		f.until = q.addMark()
	}
	f.reading = true
	q.post()
	return r.e.state.Load()&failed == 0
}

// next finds the memory for the next read. The reads are in the order of the destination.
func (f *fetch) next(r *receiver) (seg verbs.Segment, ok bool) {
	a, q := &r.arrival, &f.rail.queue
	limit := min(f.sources[f.first].length, uint64(q.conn.device.maxMessage))
	at := a.at
	var b []byte
	for len(b) == 0 {
		b = at.Next(a.dst, int64(limit))
	}
	if g := r.e.v.regions.find(b); g != nil && g.writable && len(f.staged) == 0 {
		f.regions = append(f.regions, g)
		a.at = at
		return verbs.Segment{Addr: addressOf(b), Length: uint32(len(b)), Key: g.keys[q.conn.device.index].LocalKey()}, true
	} else if g != nil {
		r.e.v.regions.release(g)
		if g.writable {
			return seg, false // once the buffers are empty
		}
	}
	if len(f.regions) > 0 {
		return seg, false // once those reads are done
	}
	if len(f.staged) >= (q.buffers.n+1)/2 {
		return seg, false // messages and records need buffers, too
	}
	i := q.buffers.take()
	if i < 0 {
		return seg, false
	}
	q.buffers.hold(i)
	n := int(min(limit, uint64(q.conn.slotBytes)))
	f.staged = append(f.staged, staged{i, n})
	s := q.segment(q.buffer(i)[:n])
	return s, true
}

// countFetched has the peer hear that a payload of its is fetched, or refused.
func (s *sender) countFetched() {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	s.fetched.count++
	s.pumpControl()
}

// end waits until the device writes nothing any more to memory that the Placer has named. The endpoint is closed.
func (f *fetch) end(e *endpoint) {
	for began := time.Now(); f.underWay(e); {
		e.v.poller.takeCompletions()
		if e.state.Load()&dead != 0 {
			return
		}
		if e.state.Load()&failed != 0 || time.Since(began) > flushTime {
			_ = f.rail.conn.qp.Fail() // after which it accepts no answer
			return
		}
		runtime.Gosched()
	}
}

// drop ends a fetch whose queue pair is destroyed. endpoint.mu is held.
func (f *fetch) drop(all *regions) {
	for _, g := range f.regions {
		all.release(g)
	}
	f.regions, f.reading = nil, false
}

// underWay reports whether a read is not complete.
func (f *fetch) underWay(e *endpoint) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return f.reading && f.waits()
}
