package worker

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/registry"
	"github.com/stepvan/stepvan/tensor"
)

// Over a one-sided van a server works in this process's memory where it can be shared. It writes answers where they
// belong and, where the van has views, reads pushes where they are. The worker grants whole memory files, each once per
// server, when it first names a tensor in one. The tensors of a request are lent until the answer to it, or until the
// server is lost and cannot reach them any more.

// Files knows the memory files of this process. [*tensor.Allocator] implements it.
type Files interface {
	// Locate finds the file that holds all of b, without allocating.
	Locate(b []byte) (tensor.Place, bool)
	// Watch calls dropped before a file goes back to the system, until stop.
	Watch(dropped func(file uint64)) (stop func())
	registry.Arenas
}

// lender grants the memory files of this process to servers. Worker.mu guards what is not dropped.
type lender struct {
	files       Files
	registry    *registry.Registry
	pool        *tensor.Allocator             // for copies of pushes
	largestSent int                           // Options.InPlaceBytes
	servers     map[*link.Session]*serverPeer // Worker.sessions
	dropped     droppedFiles
	ended       []endedMemory
}

// fileGrant is what a server was granted of a memory file.
type fileGrant struct {
	id    link.GrantID // 0: there was no grant
	freed uint64       // of an attempt without success: serverPeer.freedGrants at that time, or never
}

// never is the fileGrant.freed of a file that the van cannot share.
const never = ^uint64(0)

// fileGeneration is the generation of every grant of a file. A file is never used for something else.
const fileGeneration = 1

const allRights = link.RightRead | link.RightWrite

// reach returns how v reaches b, or the zero Target. Under Worker.mu.
func (l *lender) reach(v *serverPeer, b []byte) link.Target {
	at, ok := l.find(v, b)
	if !ok {
		return link.Target{}
	}
	g, known := v.files[at.File]
	if g.id == 0 && (!known || g.freed != never && g.freed != v.freedGrants()) {
		g = v.grantFile(&at)
	}
	if g.id == 0 {
		return link.Target{}
	}
	return link.Target{Grant: g.id, Generation: fileGeneration, Offset: at.Offset}
}

// find finds what can be granted to v of the memory that b lies in.
func (l *lender) find(v *serverPeer, b []byte) (tensor.Place, bool) {
	if v.session.Caps().Registered {
		return l.registry.Find(b)
	}
	return l.files.Locate(b)
}

// isRegistered reports whether v's van reaches b, so far as that is a matter of registration.
func (l *lender) isRegistered(v *serverPeer, b []byte) bool {
	return !v.session.Caps().Registered || l.registry.Covers(b)
}

// freedGrants changes when there may be space for another grant. Under Worker.mu.
func (v *serverPeer) freedGrants() uint64 { return v.session.Returned() + v.filesGone }

// grantFile asks for the grant of a file, and remembers the outcome. Under Worker.mu.
func (v *serverPeer) grantFile(at *tensor.Place) fileGrant {
	f := fileGrant{freed: v.freedGrants()} // before the attempt: what comes free meanwhile counts
	g, err := v.session.Grant(at.Memory, fileGeneration, allRights)
	switch {
	case err == nil:
		f.id = g.ID
	case errors.Is(err, stepvan.ErrWouldBlock):
		return fileGrant{} // the next request tries again
	case !errors.Is(err, errs.ErrNoGrant):
		f.freed = never
	}
	v.files[at.File] = f
	return f
}

// withdrawFile ends the grant of a file that goes back to the system, or of memory that is registered no more. The link
// calls done when the server does not reach it, perhaps at once, and without locks of its own. Under Worker.mu.
func (v *serverPeer) withdrawFile(file uint64, done func()) {
	v.filesGone++
	g, ok := v.files[file]
	delete(v.files, file)
	if ok && g.id != 0 {
		v.session.Withdraw(g.id, done)
	} else {
		done()
	}
}

// droppedFiles collects files that go back to the system. The goroutine that frees memory may hold any lock, so the
// list has a lock of its own.
type droppedFiles struct {
	count atomic.Int32
	mu    sync.Mutex
	// +checklocks:mu
	files []uint64
}

// add reports whether file is the first since take.
func (d *droppedFiles) add(file uint64) (first bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.files = append(d.files, file)
	return d.count.Add(1) == 1
}

func (d *droppedFiles) take() []uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := d.files
	d.files = nil
	d.count.Store(0)
	return list
}

// fileDropped withdraws the grants of a file, whose memory goes back to the system only when servers cannot reach it.
// No request may follow, so it does not wait for one. The caller may hold any lock, so another goroutine takes
// Worker.mu.
func (w *Worker) fileDropped(file uint64) {
	if w.lender.dropped.add(file) {
		go func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.lender.withdrawDropped()
		}()
	}
}

// withdrawDropped withdraws the grants of files that were dropped. No tensor in them is lent. Under Worker.mu.
func (l *lender) withdrawDropped() {
	if l.dropped.count.Load() == 0 {
		return
	}
	for _, file := range l.dropped.take() {
		for _, v := range l.servers {
			v.withdrawFile(file, func() {})
		}
	}
}
