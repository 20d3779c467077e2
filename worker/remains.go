package worker

import (
	"fmt"
	"unsafe"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/tensor"
)

// A handle that fails completes at once, while servers that live may still work with the memory of its request. What is
// left of it is kept in Worker.remains until the last of them is done, and no other request gets that memory meanwhile,
// unless both only read it.

// outlive notes that c has failed and leaves memory that servers may reach. Under Worker.mu.
func (w *Worker) outlive(c *call) {
	if c.undone > 0 || c.lent > 0 {
		w.remains = append(w.remains, c)
	}
}

// bury forgets c, all of whose memory is the program's. Under Worker.mu.
func (w *Worker) bury(c *call) {
	for i, other := range w.remains {
		if other == c {
			last := len(w.remains) - 1
			w.remains[i], w.remains[last] = w.remains[last], nil
			w.remains = w.remains[:last]
			return
		}
	}
}

// unhaunted refuses c when a request that has failed may still be reading what c has servers write, or writing
// what c uses. Under Worker.mu. Budget: one comparison while no request has failed lately.
func (w *Worker) unhaunted(c *call) error {
	for _, old := range w.remains {
		for _, p := range old.parts {
			for i := range c.push {
				if p.writes(c.push[i].Bytes()) {
					return p.haunts("push", i, c.pushKeys[i], "write to")
				}
			}
			for i := range c.pull {
				switch b := c.pull[i].Bytes(); {
				case p.writes(b):
					return p.haunts("pull", i, c.pullKeys[i], "write to")
				case p.reads(b):
					return p.haunts("pull", i, c.pullKeys[i], "read")
				}
			}
		}
	}
	return nil
}

// writes reports whether the server of p may still write to memory in b.
func (p *part) writes(b []byte) bool {
	if !p.lent || len(p.rooms) == 0 {
		return false
	}
	for j, i := range p.pulls {
		if p.rooms[j].Grant != 0 && overlap(b, p.call.pull[i].Bytes()) {
			return true
		}
	}
	return false
}

// reads reports whether memory in b may still be read for p: by its server, or on the way there.
func (p *part) reads(b []byte) bool {
	for j, i := range p.pushes {
		if (!p.done || p.lent && p.ways[j].inPlace) && overlap(b, p.call.push[i].Bytes()) {
			return true
		}
	}
	return false
}

// haunts is the refusal of tensor i of another request.
func (p *part) haunts(what string, i int, k tensor.Key, does string) error {
	when := "it has answered that one"
	switch {
	case p.server.lost != nil:
		when = "it has let go of it, or has ended: this worker has given it up, but its process lives"
	case !p.lent:
		when = "it has received that one"
	}
	return &stepvan.OpError{Op: "push_pull", Van: p.server.session.Van(), Peer: p.server.name, Err: fmt.Errorf(
		"%s tensor %d (key %d) shares memory with a request that has failed, and this server may still %s it; take other memory, or try again when %s: %w",
		what, i, k, does, when, stepvan.ErrBusy)}
}

// overlap reports whether a and b share memory.
func overlap(a, b []byte) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	x, y := uintptr(unsafe.Pointer(unsafe.SliceData(a))), uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	return x < y+uintptr(len(b)) && y < x+uintptr(len(a))
}
