package link

import (
	"github.com/stepvan/stepvan/internal/reuse"
	"github.com/stepvan/stepvan/van"
)

// frame is one van message: a piece of an Outbound, or a message of the link itself.
type frame struct {
	index     int       // in frameTable.all
	out       *Outbound // nil for the link's own
	sequence  uint64    // 0 outside the sequence
	head      []byte
	segments  [][]byte
	targets   []van.Target // of segments, or none
	size      uint64       // payload bytes
	last      bool         // of its Outbound
	completed bool         // by the van
	acked     bool         // by the peer
	link      queueLink[frame]
	nextFree  *frame
}

// id names the frame to the van.
func (f *frame) id() van.OpID { return van.OpID(f.index) }

// frameTable holds the frames of a session, which are recycled. Session.mu guards it.
type frameTable struct {
	all  []*frame
	free *frame
}

// take returns an unused frame.
func (x *frameTable) take() *frame {
	f := x.free
	if f == nil {
		f = &frame{index: len(x.all), head: make([]byte, 0, 512)}
		x.all = append(x.all, f)
	} else {
		x.free = f.nextFree
	}
	f.out, f.sequence, f.size, f.last, f.completed, f.acked = nil, 0, 0, false, false, false
	f.segments, f.targets = f.segments[:0], f.targets[:0]
	return f
}

// put recycles f.
func (x *frameTable) put(f *frame) {
	f.segments = reuse.Slice(f.segments)
	f.out = nil
	f.nextFree, x.free = x.free, f
}
