package tensor

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Place says where memory lies in a memory file of an [Allocator], for peers that map the file. It is for stepvan
// itself.
type Place struct {
	File   uint64 // the number of the file, unique in the process and never 0
	FD     int    // the descriptor of the file; it is the Allocator's, and valid while a region in the file is open; -1: no file
	Memory []byte // the whole file
	Offset int64  // of the memory in the file, in bytes
}

// atlas finds the file of an address. It is replaced whole, so readers need no lock.
type atlas struct {
	files atomic.Pointer[[]charted] // by address

	mu       sync.Mutex
	watchers []*watcher
	keepers  []*keeper
}

type charted struct {
	start, end uintptr
	id         uint64
	fd         int
	mem        []byte
}

type watcher struct{ dropped func(file uint64) }

type keeper struct {
	keep func(file uint64, unmap func()) bool
}

// lastFile makes file numbers unique in the process.
var lastFile atomic.Uint64

// NewFileNumber returns a number for memory outside of all allocators that no file has. It is for stepvan itself.
func NewFileNumber() uint64 { return lastFile.Add(1) }

// Locate finds the file that holds all of b. It returns false when no file of this allocator does. The region that b
// belongs to must be open. Locate takes no lock and does not allocate. It is for stepvan itself.
func (a *Allocator) Locate(b []byte) (Place, bool) {
	at, ok := a.Find(b)
	if !ok || at.FD < 0 {
		return Place{}, false
	}
	return at, true
}

// Find is Locate that also finds arenas which are in no file. It is for stepvan itself.
func (a *Allocator) Find(b []byte) (Place, bool) {
	files := a.arenas.atlas.files.Load()
	if files == nil || len(b) == 0 {
		return Place{}, false
	}
	at := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	for i := range *files {
		f := &(*files)[i]
		if at < f.start || at >= f.end {
			continue
		}
		if uintptr(len(b)) > f.end-at {
			return Place{}, false
		}
		return Place{File: f.id, FD: f.fd, Memory: f.mem, Offset: int64(at - f.start)}, true
	}
	return Place{}, false
}

// Watch calls dropped with the number of each file before the file goes back to the system, until stop is called. The
// allocator calls several watchers in the order of their Watch. Any goroutine that frees memory may call dropped, so
// dropped must not block. It is for stepvan itself.
func (a *Allocator) Watch(dropped func(file uint64)) (stop func()) {
	w := &watcher{dropped}
	a.arenas.atlas.mu.Lock()
	defer a.arenas.atlas.mu.Unlock()
	a.arenas.atlas.watchers = append(a.arenas.atlas.watchers, w)
	return func() {
		a.arenas.atlas.mu.Lock()
		defer a.arenas.atlas.mu.Unlock()
		a.arenas.atlas.watchers = slices.DeleteFunc(a.arenas.atlas.watchers, func(other *watcher) bool { return other == w })
	}
}

// Keep has keep decide when the memory of an arena goes back to the system, until stop is called. The allocator calls
// keep behind the watchers. If keep returns true, it calls unmap once, later; until then the memory is taken, and
// counts nowhere. Any goroutine that frees memory may call keep, so keep must not block. It is for stepvan itself.
func (a *Allocator) Keep(keep func(file uint64, unmap func()) bool) (stop func()) {
	k := &keeper{keep}
	a.arenas.atlas.mu.Lock()
	defer a.arenas.atlas.mu.Unlock()
	a.arenas.atlas.keepers = append(a.arenas.atlas.keepers, k)
	return func() {
		a.arenas.atlas.mu.Lock()
		defer a.arenas.atlas.mu.Unlock()
		a.arenas.atlas.keepers = slices.DeleteFunc(a.arenas.atlas.keepers, func(other *keeper) bool { return other == k })
	}
}

// keep reports whether a keeper wants an arena for longer. The last of them then calls unmap.
func (t *atlas) keep(file uint64, unmap func()) bool {
	t.mu.Lock()
	keepers := slices.Clone(t.keepers)
	t.mu.Unlock()
	left := new(atomic.Int32)
	left.Store(1)
	for _, k := range keepers {
		left.Add(1)
		done := func() {
			if left.Add(-1) == 0 {
				unmap()
			}
		}
		if !k.keep(file, done) {
			left.Add(-1)
		}
	}
	return left.Add(-1) > 0
}

// chart brings the atlas up to date. The caller holds the lock of the list of arenas.
func (t *atlas) chart(arenas []*arena) {
	files := make([]charted, 0, len(arenas))
	for _, ar := range arenas {
		mem := ar.mem.Bytes()
		start := uintptr(unsafe.Pointer(unsafe.SliceData(mem)))
		files = append(files, charted{start: start, end: start + uintptr(len(mem)), id: ar.id, fd: ar.mem.FD(), mem: mem})
	}
	slices.SortFunc(files, func(x, y charted) int { return cmp.Compare(x.start, y.start) })
	t.files.Store(&files)
}

// tell has the watchers forget the files of arenas that are about to be closed.
func (t *atlas) tell(gone []*arena) {
	if len(gone) == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, w := range t.watchers {
		for _, ar := range gone {
			w.dropped(ar.id)
		}
	}
}
