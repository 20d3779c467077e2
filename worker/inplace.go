package worker

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/tensor"
)

// Over a one-sided van a server works in this process's memory where it can be shared: it reads pushes where
// they are and writes answers where they belong. Memory is granted by whole files, once per server,
// when the first tensor in one is named. The tensors of a part are lent from then until its answer, or
// until a server that was lost has let go.

// Files knows the memory files of this process. *tensor.Allocator implements it.
type Files interface {
	// Locate finds the file that holds all of b, without allocating.
	Locate(b []byte) (tensor.Place, bool)
	// Watch calls dropped before a file goes back to the system, until stop.
	Watch(dropped func(file uint64)) (stop func())
}

// file is what a server was granted of a memory file.
type file struct {
	grant link.GrantID // 0: it could not be had
	freed uint64       // without a grant: server.freed when it was asked for, or never
}

// never is the file.freed of what the van cannot share.
const never = ^uint64(0)

// hopeless reports whether asking v for the grant of f again would be in vain. Under Worker.mu.
func (v *server) hopeless(f *file) bool { return f.freed == never || f.freed == v.freed() }

// freed changes when there may be room for another grant. Under Worker.mu.
func (v *server) freed() uint64 { return v.session.Returned() + v.gone }

// fileGeneration is that of every grant of a file: files are never used for something else.
const fileGeneration = 1

const everything = link.RightRead | link.RightWrite

// reach returns how v reaches b. Under Worker.mu.
func (w *Worker) reach(v *server, b []byte) (link.Target, bool) {
	at, ok := w.opt.Files.Locate(b)
	if !ok {
		return link.Target{}, false
	}
	f, known := v.files[at.File]
	if f.grant == 0 && (!known || !v.hopeless(&f)) {
		f = v.grant(&at)
	}
	if f.grant == 0 {
		return link.Target{}, false
	}
	return link.Target{Grant: f.grant, Generation: fileGeneration, Offset: at.Offset}, true
}

// grant asks for the grant of a file, and remembers what came of it. Under Worker.mu.
func (v *server) grant(at *tensor.Place) file {
	f := file{freed: v.freed()} // before the attempt: what comes free meanwhile counts
	g, err := v.session.Grant(at.Memory, fileGeneration, everything)
	switch {
	case err == nil:
		f.grant = g.ID
	case errors.Is(err, stepvan.ErrWouldBlock):
		return file{} // another time
	case !errors.Is(err, errs.ErrNoGrant):
		f.freed = never
	}
	v.files[at.File] = f
	return f
}

// lend names the memory of p's tensors to the server where it can reach them. Under Worker.mu.
func (w *Worker) lend(p *part) {
	if len(p.pulls) == 0 || w.opt.InPlaceBytes < 0 {
		return // what is only pushed is sent: the server may take its time with it
	}
	w.forgetFiles()
	w.lendPulls(p)
	if len(p.call.push)*len(p.call.pull) <= maxComparisons {
		w.lendPushes(p)
	}
	if p.lent {
		p.call.lent++
	}
}

func (w *Worker) lendPulls(p *part) {
	for _, i := range p.pulls {
		var t link.Target
		if b := p.call.pull[i].Bytes(); len(b) > 0 {
			t, _ = w.reach(p.server, b)
		}
		p.rooms = append(p.rooms, t)
		p.lent = p.lent || t.Grant != 0
	}
}

func (w *Worker) lendPushes(p *part) {
	c := p.call
	for j, i := range p.pushes {
		y := &p.ways[j]
		if y.known || c.push[i].Len() <= w.opt.InPlaceBytes || c.pulledInto(i) {
			continue
		}
		if t, ok := w.reach(p.server, c.push[i].Bytes()); ok {
			y.target, y.inPlace, p.lent = t, true, true
		}
	}
}

// maxComparisons bounds the work of pulledInto for one part; the pushes of a larger request are sent.
const maxComparisons = 1 << 14

// pulledInto reports whether a pull of c shares memory with push i, which the server must then
// have a copy of: it may answer before it has read everything.
func (c *call) pulledInto(i int) bool {
	b := c.push[i].Bytes()
	for k := range c.pull {
		if overlap(b, c.pull[k].Bytes()) {
			return true
		}
	}
	return false
}

// unlend notes that the server of p reaches none of its tensors any more. Under Worker.mu; settle follows.
func (p *part) unlend() {
	if p.lent {
		p.lent = false
		p.call.lent--
	}
}

// detached frees what a lost server could still reach.
func (w *Worker) detached(s *link.Session) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.parts {
		if c := p.call; c != nil && p.lent && p.server.session == s {
			p.unlend()
			if c.submitted {
				w.settle(c)
			}
		}
	}
}

// dropped collects files that are gone. Its lock is taken by whoever frees memory, with any other one held.
type dropped struct {
	count atomic.Int32
	mu    sync.Mutex
	files []uint64
}

// add reports whether somebody has to take the files.
func (d *dropped) add(file uint64) (first bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.files = append(d.files, file)
	return d.count.Add(1) == 1
}

func (d *dropped) take() []uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := d.files
	d.files = nil
	d.count.Store(0)
	return list
}

// onDropped sees to it that servers let go of a file, whose memory goes back to the system only then: soon, as
// no request may follow, and on another goroutine, as who frees memory may hold any lock.
func (w *Worker) onDropped(file uint64) {
	if w.dropped.add(file) {
		go func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.forgetFiles()
		}()
	}
}

// forgetFiles takes back the grants of files that are gone. No tensor in them is lent. Under Worker.mu.
func (w *Worker) forgetFiles() {
	if w.dropped.count.Load() == 0 {
		return
	}
	for _, id := range w.dropped.take() {
		for _, v := range w.sessions {
			v.gone++
			if f, ok := v.files[id]; ok {
				delete(v.files, id)
				if f.grant != 0 {
					v.session.Withdraw(f.grant, func() {})
				}
			}
		}
	}
}
