package worker

import (
	"errors"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/wire"
)

// place is what a server has registered for pushes of one key.
type place struct {
	target link.Target // where this worker writes them itself; the zero Target where the server reads them
	bytes  uint64
}

// maxPlaces bounds what one server may announce; pushes of keys beyond are read by the server.
const maxPlaces = 1 << 20

// announced takes an announcement of v. Under Worker.mu.
func (v *server) announced(a *wire.Announcement, generation uint32) {
	for i := range a.Keys {
		d := &a.Keys[i]
		if len(v.places) >= maxPlaces {
			break
		}
		p := place{bytes: d.Bytes}
		if d.Region != 0 && v.session.OneSided() {
			p.target = link.TargetOf(d)
		}
		v.places[d.Key] = p
	}
	v.raise(generation)
}

// withdrawn takes the end of registrations of v. Under Worker.mu.
func (w *Worker) withdrawn(v *server, a *wire.Announcement, generation uint32) {
	for i := range a.Keys {
		delete(v.places, a.Keys[i].Key)
	}
	v.raise(generation)
	if generation > 0 && v.session.OneSided() { // the last one of its kind
		v.writers.retire(generation)
		w.noteFence(v)
	}
}

func (v *server) raise(generation uint32) {
	if generation > v.generation.Load() {
		v.generation.Store(generation)
	}
}

// way is how the bytes of a push go.
type way struct {
	target  link.Target // of what is written, or read in place
	inPlace bool        // the server reads them where they are
	known   bool        // the server has registered the key
	bytes   uint64      // that the target takes
}

// aim decides how the bytes of p go. Under Worker.mu; land follows when the link has the part, or has refused it.
func (w *Worker) aim(p *part) {
	if s := p.server.session; !s.OneSided() || p.small(s.InMessage()) {
		return
	}
	for _, i := range p.pushes {
		at, known := p.server.places[p.call.pushKeys[i]]
		p.ways = append(p.ways, way{target: at.target, known: known, bytes: at.bytes})
	}
	w.lend(p)
	if p.written() {
		p.aimed, p.watch = true, p.server.writers.begin()
	}
}

// small reports whether all tensors of p take no more than most bytes together: they travel with their messages, which
// is less work for both sides than to say where they belong.
func (p *part) small(most int64) bool {
	var n int64
	for _, i := range p.pushes {
		n += int64(p.call.push[i].Len())
	}
	for _, i := range p.pulls {
		n += int64(p.call.pull[i].Len())
	}
	return n <= most
}

// written reports whether the pushes are written where the server has registered memory for them, which
// is so when it has for all of them, but for those that stay in place.
func (p *part) written() bool {
	some, all := false, true
	for j, i := range p.pushes {
		if n := uint64(p.call.push[i].Len()); n > 0 && !p.ways[j].inPlace {
			some = true
			all = all && p.ways[j].target.Grant != 0 && p.ways[j].bytes >= n
		}
	}
	all = all && some
	for j := range p.ways {
		if !all && !p.ways[j].inPlace {
			p.ways[j].target = link.Target{}
		}
	}
	return all
}

// land ends what aim has begun with the parts of c. Under Worker.mu.
func (w *Worker) land(c *call) {
	for _, p := range c.parts {
		if p.aimed {
			p.aimed = false
			p.server.writers.end(p.watch)
			w.noteFence(p.server)
		}
	}
}

// writers counts the parts of one server that have targets and are not in the link's hands yet, in
// two watches: those that began after a withdrawal need not be waited for. Under Worker.mu.
type writers struct {
	count [2]int
	watch uint8  // of those that begin
	owed  uint32 // generation of the fence that waits for the other watch; 0 for none
	next  uint32 // of the one behind it
	due   uint32 // of the one that can be sent
}

func (q *writers) begin() (watch uint8) {
	q.count[q.watch]++
	return q.watch
}

func (q *writers) end(watch uint8) {
	q.count[watch]--
	q.settle()
}

// retire asks for a fence behind all that have begun.
func (q *writers) retire(generation uint32) {
	if q.owed != 0 {
		q.next = generation
		return
	}
	q.owed = generation
	q.watch = 1 - q.watch
	q.settle()
}

func (q *writers) settle() {
	for q.owed != 0 && q.count[1-q.watch] == 0 {
		q.due, q.owed = q.owed, 0
		if q.next != 0 {
			q.owed, q.next = q.next, 0
			q.watch = 1 - q.watch
		}
	}
}

// noteFence has unlock send the fence of v, if one is due. Under Worker.mu.
func (w *Worker) noteFence(v *server) {
	if v.writers.due != 0 {
		w.fences = append(w.fences, v)
	}
}

// unlock gives up Worker.mu and sends the fences that are due.
func (w *Worker) unlock() {
	list := w.fences
	w.fences = nil
	w.mu.Unlock()
	for _, v := range list {
		w.fence(v)
	}
}

// fence tells v that nothing more is written into what it has withdrawn, if that is due. Without locks.
func (w *Worker) fence(v *server) {
	w.mu.Lock()
	g := v.writers.due
	v.writers.due = 0
	w.mu.Unlock()
	if g == 0 {
		return
	}
	err := v.session.Send(&link.Outbound{Channel: link.ChannelRequest, Op: wire.OpFence, Generation: g, Flags: wire.FlagAckNow})
	if errors.Is(err, stepvan.ErrWouldBlock) {
		w.mu.Lock()
		v.writers.due = max(v.writers.due, g)
		w.noteFence(v) // for when a request is done
		w.mu.Unlock()
	}
}
