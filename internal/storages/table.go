package storages

import (
	"sync"

	"github.com/rs/zerolog"

	"github.com/stepvan/stepvan/tensor"
)

// ID is the number of a storage. No other storage ever gets it.
type ID uint64

// Registration is registered memory, until Close. Both methods may be called by any goroutine.
type Registration interface {
	// Registered reports whether a device reaches the memory.
	Registered() bool
	// Close blocks until the devices have given the memory up.
	Close() error
}

// Options make a table.
type Options struct {
	Register func(t tensor.Tensor) (Registration, error) // it may block for long
	Limit    int64                                       // bytes that are registered at once
	Contain  func(work func())                           // runs the goroutine of the table; nil: a panic ends the program
	Log      zerolog.Logger
}

// Table has the storages that operations have named. Any goroutine may call its methods.
type Table struct {
	opt   Options
	lines lines

	mu sync.Mutex
	// +checklocks:mu
	known map[ID]*storage
	// +checklocks:mu
	uses useList // of what is registered
	// +checklocks:mu
	pinned int64 // bytes that are registered, or about to be
	// +checklocks:mu
	due []*storage // in the order in which the goroutine registers them
	// +checklocks:mu
	works bool // the goroutine runs
	// +checklocks:mu
	closed bool
	idle   sync.WaitGroup // the goroutine
}

// storage is what a table knows of one storage. Table.mu guards it.
type storage struct {
	memory tensor.Tensor // all of it, in the region that operations use
	state  state
	held   Registration
	own    *tensor.Window // what is registered, so that only operations hold the region of memory
	over   chan struct{}  // closed when the goroutine that is at work with it has done; nil while none is
	links
}

func (s *storage) bytes() int64 { return int64(s.memory.Len()) }

type state uint8

const (
	unseen state = iota // since it has made room for others
	seenOnce
	waiting    // it is in Table.due
	working    // a goroutine registers it, or ends that
	registered // it is in Table.uses
	refused    // no device reaches it, or the system lacks what that needs
)

// New makes a table.
func New(o Options) *Table {
	if o.Contain == nil {
		o.Contain = func(work func()) { work() }
	}
	return &Table{opt: o, lines: newLines(o.Log), known: map[ID]*storage{}}
}

// See notes that the program has begun an operation in a storage, whose memory is r. It does not block. Budget: one
// lock, one look-up, 0 allocations for a known storage.
func (t *Table) See(id ID, r *tensor.Region) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.known[id]
	switch {
	case t.closed:
	case s == nil:
		t.add(id, r)
	case s.state == registered:
		t.uses.renew(s)
	case s.state == unseen:
		s.state = seenOnce
	case s.state == seenOnce:
		t.queue(s)
	}
}

// add adds a storage. One that can never be registered is refused at once. Under Table.mu.
// +checklocks:t.mu
func (t *Table) add(id ID, r *tensor.Region) {
	all, err := tensor.FromRegion(r, 0, tensor.Uint8, tensor.ShapeOf(int64(r.Len())))
	if err != nil {
		return
	}
	s := &storage{memory: all, state: seenOnce}
	if s.bytes() == 0 || s.bytes() > t.opt.Limit {
		s.state = refused
		t.lines.full(s.bytes(), t.opt.Limit)
	}
	t.known[id] = s
}

// queue has the goroutine register s. Under Table.mu.
// +checklocks:t.mu
func (t *Table) queue(s *storage) {
	s.state = waiting
	t.due = append(t.due, s)
	if !t.works {
		t.works = true
		t.idle.Go(func() { t.opt.Contain(t.work) })
	}
}

// End forgets a storage whose memory is about to go. When it returns, no device has the memory registered on behalf of
// the table. It blocks for as long as the devices do.
func (t *Table) End(id ID) {
	for {
		over, s := t.take(id)
		switch {
		case over != nil:
			<-over
			continue
		case s != nil:
			t.giveUp(s.held, s.own)
			t.forget(id, s)
		}
		return
	}
}

// take takes a storage out of use. While another goroutine is at work with it, over says when to try again. A storage
// that is registered is the caller's to give up.
func (t *Table) take(id ID) (over chan struct{}, held *storage) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.known[id]
	if s == nil {
		return nil, nil
	}
	switch s.state {
	case working:
		return s.over, nil
	case registered:
		t.unlist(s)
		s.state, s.over = working, make(chan struct{})
		return nil, s
	}
	s.state = refused // the goroutine passes over one that is still due
	delete(t.known, id)
	return nil, nil
}

// forget removes a storage that was given up.
func (t *Table) forget(id ID, s *storage) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.known, id)
	if s.state == working { // a panic may have ended the work of the table
		s.state = refused
		close(s.over)
	}
}

// unlist takes a registered storage out of the count. Under Table.mu.
// +checklocks:t.mu
func (t *Table) unlist(s *storage) {
	t.uses.remove(s)
	t.pinned -= s.bytes()
}

// giveUp ends a registration, if there is one.
func (t *Table) giveUp(held Registration, own *tensor.Window) {
	if held == nil {
		return
	}
	if err := held.Close(); err != nil {
		t.opt.Log.Warn().Err(err).Msg("a device did not give up memory that stepvan had registered by itself")
	}
	own.Shut()
}

// Pinned returns how many storages are registered, and their bytes.
func (t *Table) Pinned() (count int, bytes int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.uses.count, t.pinned
}

// Settle waits until nothing is due.
func (t *Table) Settle() { t.idle.Wait() }

// Close ends all registrations of the table, which registers nothing from then on. Idempotent.
func (t *Table) Close() {
	for _, id := range t.close() {
		t.End(id)
	}
	t.lines.end()
}

func (t *Table) close() (all []ID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	for id := range t.known {
		all = append(all, id)
	}
	return all
}
