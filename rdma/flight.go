package rdma

import "github.com/stepvan/stepvan/van"

// flight keeps what was sent over a rail until the peer has it, where a connection may have several rails. What the
// peer does not have when the rail fails goes over another. Guarded by endpoint.mu.
type flight struct {
	on      bool
	slots   []carried // a ring
	first   uint32    // the oldest slot that the peer may not have, counted on this rail from 1
	retired uint32    // the oldest one whose request is not complete
	end     uint32    // behind the newest
	records []carriedRecord
}

// carried is a message slot on its way. Its bytes are in its buffer.
type carried struct {
	buffer   int
	number   uint32 // of the slot among those of all rails
	bytes    int    // behind the prefix
	op       uint32 // the operation that the writes in front of it are of
	from, to mark
	request  uint32
	complete bool
}

// mark is a place in the writes of an operation.
type mark struct {
	write int
	done  int64
}

// hasWrites reports whether payload was written in front of the slot.
func (c *carried) hasWrites() bool { return c.from != c.to }

// carriedRecord is a record that must arrive.
type carriedRecord struct {
	number uint32
	flag   flags
	grants []van.GrantID
	loss   *rail // with flagRail: the rail that this side has shut
}

// init makes room for the slots that the peer may not have, and for those whose requests may not be complete.
func (f *flight) init(buffers int, requests uint32) {
	size := 1
	for size < buffers+int(requests) {
		size *= 2
	}
	f.on, f.slots, f.first, f.retired, f.end = true, make([]carried, size), 1, 1, 1
}

func (f *flight) at(n uint32) *carried { return &f.slots[n&uint32(len(f.slots)-1)] }

func (f *flight) empty() bool { return f.first == f.end }

func (f *flight) push(c carried) {
	*f.at(f.end) = c
	f.end++
}

// reclaim frees the buffers of slots up to and with one: the peer has them.
func (f *flight) reclaim(upTo uint32, b *buffers, retired uint32) {
	for ; f.first != f.end && int32(upTo-f.first) >= 0; f.first++ {
		b.drop(f.at(f.first).buffer, retired)
	}
}

// forget forgets records up to and with one: the peer has them.
func (f *flight) forget(upTo uint32) {
	i := 0
	for i < len(f.records) && int32(upTo-f.records[i].number) >= 0 {
		i++
	}
	f.records = append(f.records[:0], f.records[i:]...)
}

// complete notes that the device has done all requests up to and with one.
func (f *flight) complete(request uint32, all *operations) {
	for ; f.retired != f.end && int32(request-f.at(f.retired).request) >= 0; f.retired++ {
		f.at(f.retired).finish(all)
	}
}

// finish notes that the writes in front of a slot are in the memory of the peer.
func (c *carried) finish(all *operations) {
	if !c.complete && c.hasWrites() {
		all.at(c.op).parts--
	}
	c.complete = true
}
