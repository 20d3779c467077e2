package rdma

import (
	"github.com/stepvan/stepvan/internal/reuse"
	"github.com/stepvan/stepvan/van"
)

// operation is an accepted message that is not complete.
type operation struct {
	id      van.OpID
	head    []byte
	payload [][]byte // what travels in slots
	headAt  int      // bytes of head that are in slots already
	at      van.Cursor
	left    int64 // bytes of payload that are not in slots yet
	size    int64 // bytes of payload that travel in slots
	writes  []write
	next    int  // of writes
	written bool // it is a message with targets
	begun   bool // its first slot is posted
	posted  bool // nothing is left to post
	pinned  bool // the device reads the source, until the request is complete
	until   uint32
	parts   int    // with several rails: slots with writes in front of them that are not complete
	list    []byte // of sources, with fetch
	fetch   bool   // the peer fetches the payload, and says so
	offered uint32 // the number of that payload
	err     error  // why it has failed while the device still reads the source
}

// write is a segment that the device writes into a grant of the peer.
type write struct {
	from   []byte
	region *region
	grant  *peerGrant
	remote uint64
	done   int64
}

// begin takes over a message, except the segments with targets.
func (o *operation) begin(m *van.Message) {
	*o = operation{id: m.Op, head: m.Head, payload: o.payload[:0], writes: o.writes[:0], list: o.list, written: len(m.Target) > 0}
	for i, p := range m.Payload {
		if !o.written || m.Target[i].IsZero() {
			o.payload = append(o.payload, p)
			o.size += int64(len(p))
		}
	}
	o.left = o.size
}

// spare has the operation continue with a copy of its payload, so that the source is the caller's again.
func (o *operation) spare(to []byte) {
	if o.left == 0 {
		return
	}
	var c van.Cursor
	c.Gather(to[:o.size], o.payload)
	done := o.size - o.left
	clear(o.payload)
	o.payload = append(o.payload[:0], to[:o.size])
	o.at = van.Cursor{Offset: int(done)}
}

// end gives the memory back.
func (o *operation) end(all *regions) {
	o.releaseRegions(all)
	o.head, o.payload, o.err = nil, reuse.Slice(o.payload), nil
}

func (o *operation) releaseRegions(all *regions) {
	for i := range o.writes {
		all.release(o.writes[i].region)
	}
	o.writes = reuse.Slice(o.writes)
}

// operations are those that are not complete, in the order of acceptance, and the completions that were not polled.
// Guarded by endpoint.mu.
type operations struct {
	ring     []operation
	mask     uint32
	first    uint32 // the oldest
	next     uint32 // the first that is not all posted
	end      uint32
	finished []completion // not polled
	limit    int
	several  bool // rails may be
	regions  *regions
	fetched  uint32 // payloads that the peer has fetched so far
}

// completion of an operation.
type completion struct {
	op  van.OpID
	err error
}

func (q *operations) init(limit int, all *regions) {
	q.regions = all
	size := 1
	for size < limit {
		size *= 2
	}
	q.ring, q.mask, q.limit = make([]operation, size), uint32(size-1), limit
}

// outstanding is how many operations are not complete, or their completion not polled.
func (q *operations) outstanding() int { return int(q.end-q.first) + len(q.finished) }

// idle reports whether every operation is complete, and its completion polled.
func (q *operations) idle() bool { return q.first == q.end && len(q.finished) == 0 }

func (q *operations) push() *operation {
	q.end++
	return &q.ring[(q.end-1)&q.mask]
}

// drop takes back the operation that was pushed last.
func (q *operations) drop() {
	q.end--
	q.ring[q.end&q.mask].end(q.regions)
	if q.next == q.end+1 {
		q.next = q.end
	}
}

// unposted is the first operation of which something is left to post, or nil.
func (q *operations) unposted() *operation {
	if q.next == q.end {
		return nil
	}
	return &q.ring[q.next&q.mask]
}

// complete finishes the operations that need nothing any more, from the oldest on. retired is the last request that is
// complete.
func (q *operations) complete(retired uint32) {
	for q.first != q.next {
		o := &q.ring[q.first&q.mask]
		if q.writes(o, retired) || o.fetch && o.err == nil && int32(q.fetched-o.offered) < 0 {
			return
		}
		q.finish(o, o.err)
		q.first++
	}
}

// writes reports whether the device may still read what the operation writes.
func (q *operations) writes(o *operation, retired uint32) bool {
	if q.several {
		return o.parts > 0
	}
	return o.pinned && int32(retired-o.until) < 0
}

// writeTo reports whether an operation writes to a grant: all or a part of it is posted, and not known to be complete.
func (q *operations) writeTo(id van.GrantID) bool {
	for i := q.first; i != q.end; i++ {
		o := &q.ring[i&q.mask]
		if o.parts == 0 {
			continue
		}
		for _, w := range o.writes {
			if w.grant.ID == id {
				return true
			}
		}
	}
	return false
}

// at is the operation with a number that push has given.
func (q *operations) at(n uint32) *operation { return &q.ring[n&q.mask] }

// failUnposted finishes the operations in error that are not all posted. One that is posted in part waits for the
// device.
func (q *operations) failUnposted(err error) {
	if o := q.unposted(); o != nil && o.pinned {
		o.posted, o.err = true, err
		q.next++
	}
	for i := q.next; i != q.end; i++ {
		q.finish(&q.ring[i&q.mask], err)
	}
	q.end = q.next
}

// failAll finishes all operations in error, once the device uses nothing.
func (q *operations) failAll(err error) {
	for i := q.first; i != q.end; i++ {
		q.finish(&q.ring[i&q.mask], err)
	}
	q.next, q.end = q.first, q.first
}

func (q *operations) finish(o *operation, err error) {
	q.finished = append(q.finished, completion{o.id, err})
	o.end(q.regions)
}
