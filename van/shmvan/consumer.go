package shmvan

import (
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/shm"
)

// consumer reads records out of the peer's ring. Poller only.
type consumer struct {
	own         words
	peer        words
	pos         uint64
	reported    uint64 // pos as the peer knows it
	reportEvery uint64 // how far reported may be behind pos
	done        uint64 // messages whose source has been read
	wakeWanted  bool   // the peer wants a wake-up
	moved       bool   // done has changed since the last report
	edge        shm.Edge
}

// next returns the record at the front, if there is one.
func (c *consumer) next() (r record, ok bool, err error) {
	size := uint64(len(c.peer.ring))
	for {
		at := c.pos & (size - 1)
		w := shm.Word64(c.peer.ring, int(at)).Load()
		if w == 0 {
			return r, false, nil
		}
		n := w & wordSize
		r.kind, r.word = kind(w>>wordKind), w
		if w&wordUsed == 0 || n == 0 || n%shm.LineBytes != 0 || n > size-at || r.kind == 0 || r.kind >= kindEnd {
			return r, false, errs.Protocol("record", int(at), "not a record")
		}
		if r.kind == kindSkip {
			if n != size-at || at == 0 {
				return r, false, errs.Protocol("record", int(at), "skips to the middle of the ring")
			}
			c.pos += n
			continue
		}
		c.edge.Consume()
		r.read(c.peer.ring[at : at+n : at+n])
		return r, true, nil
	}
}

// waiting reports whether there is something to read.
func (c *consumer) waiting() bool {
	return shm.Word64(c.peer.ring, int(c.pos&(uint64(len(c.peer.ring))-1))).Load() != 0
}

// advance moves behind r. sourced says that the peer waits for its source memory.
func (c *consumer) advance(r *record, sourced bool) {
	c.pos += r.word & wordSize
	if r.word&wordWake != 0 {
		c.wakeWanted = true
	}
	if sourced {
		c.sourceRead()
	}
}

// sourceRead has report tell the peer that it may reuse the source memory of one more message.
func (c *consumer) sourceRead() {
	c.done++
	c.moved = true
}

// report tells the peer how far this side is, when the peer waits for that or has not heard of it for long. It returns
// whether the caller should wake a peer that sleeps.
func (c *consumer) report() (wake bool) {
	if !c.wakeWanted && !c.moved && c.pos-c.reported < c.reportEvery {
		return false
	}
	c.reported = c.pos
	c.edge.Publish()
	if c.moved {
		c.own.done.Store(c.done)
	}
	c.own.consumed.Store(c.pos)
	wake = c.wakeWanted || c.moved
	c.wakeWanted, c.moved = false, false
	return wake
}
