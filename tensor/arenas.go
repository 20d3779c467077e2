package tensor

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/shm"
	"github.com/stepvan/stepvan/internal/text"
)

// firstArenaBytes is the size of the first arena. Each further one is as large
// as all before it together, up to Options.ArenaBytes: what a process takes
// stays within twice what it uses, and the arenas stay few.
const firstArenaBytes = 4 << 20

// arenaList takes memory from the system, and gives it back.
type arenaList struct {
	opt   *Options
	page  int64
	unit  int64 // of arena sizes: the page they are made of
	atlas atlas
	made  int // arenas ever, to number their files; under growing

	growing sync.Mutex // held to make an arena; taken before mu
	mu      sync.Mutex
	arenas  []*arena
	held    int64 // bytes of arenas; rises only under growing
	closed  bool
	late    error // of the system, for Close to report
}

func (l *arenaList) init(opt *Options) {
	l.opt, l.page = opt, int64(os.Getpagesize())
	l.unit = l.page
	if opt.HugePages == HugePagesRequired {
		l.unit = shm.HugePageBytes
	}
}

// want is room that a region needs.
type want struct {
	n, align int64 // n is a multiple of align
	own      bool  // in a file that holds nothing else
}

// take looks for room in the arenas that there are.
func (l *arenaList) take(w want) (span, bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return span{}, false, l.errClosed()
	}
	for _, ar := range l.arenas {
		if w.own || ar.own {
			continue
		}
		if s, ok := ar.take(w.n, w.align); ok {
			return s, true, nil
		}
	}
	return span{}, false, nil
}

func (l *arenaList) errClosed() error {
	return fmt.Errorf("tensor: allocator %q is closed: %w", text.Cut(l.opt.Name), stepvan.ErrClosed)
}

// grow makes an arena of size bytes and cuts what is wanted from it. The caller holds growing, not mu: making an arena
// takes milliseconds.
func (l *arenaList) grow(size int64, w want) (span, error) {
	mem, err := l.create(size)
	if err != nil {
		return span{}, err
	}
	ar := newArena(mem, w.own || w.n > l.opt.ArenaBytes)
	s, _ := ar.take(w.n, w.align)
	return s, l.publish(ar)
}

// nextSize returns the size of the next arena, which must hold what is wanted, and whether it fits into the limit.
func (l *arenaList) nextSize(w want) (size int64, fits bool) {
	l.mu.Lock()
	usual := min(max(l.held, firstArenaBytes), l.opt.ArenaBytes)
	l.mu.Unlock()
	if w.own {
		usual = 0
	}
	size = roundUp(max(w.n, usual), l.unit)
	return size, l.fits(size)
}

func (l *arenaList) fits(size int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.opt.MaxBytes == 0 || size <= l.opt.MaxBytes-l.held
}

// create takes memory from the system, in huge pages if they are wanted and there. Where this process may
// have no memory files it is memory that peers cannot map.
func (l *arenaList) create(size int64) (mem *shm.Memory, err error) {
	if l.opt.Near == nil {
		return l.createHere(size)
	}
	l.opt.Near(func() { mem, err = l.createHere(size) })
	return mem, err
}

func (l *arenaList) createHere(size int64) (*shm.Memory, error) {
	l.made++
	name := fmt.Sprintf("stepvan:%s:%d", l.opt.Name, l.made)
	switch l.opt.HugePages {
	case HugePagesRequired:
		return shm.Create(name, size, true)
	case HugePagesAuto:
		huge := roundUp(size, shm.HugePageBytes)
		if !l.fits(huge) {
			break
		}
		if mem, err := shm.Create(name, huge, true); err == nil {
			return mem, nil
		}
	}
	mem, err := shm.Create(name, size, false)
	if shm.NoFiles(err) {
		return shm.Anonymous(size)
	}
	return mem, err
}

func (l *arenaList) publish(ar *arena) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return errors.Join(l.errClosed(), ar.mem.Close())
	}
	l.arenas = append(l.arenas, ar)
	l.held += ar.size
	l.atlas.chart(l.arenas)
	return nil
}

// give takes a span back, and closes arenas that are not worth keeping since then.
func (l *arenaList) give(s span) error {
	l.mu.Lock()
	s.arena.give(s)
	drop := l.surplus(s.arena)
	l.mu.Unlock()
	return l.closeArenas(drop)
}

// surplus takes arenas out that are not worth keeping since ar got room: of
// the empty ones only the largest stays. The caller holds mu.
func (l *arenaList) surplus(ar *arena) []*arena {
	if ar.used > 0 {
		return nil
	}
	if ar.own || l.closed {
		return l.remove(func(x *arena) bool { return x == ar })
	}
	keep := ar
	for _, x := range l.arenas {
		if x.used == 0 && x.size > keep.size {
			keep = x
		}
	}
	return l.remove(func(x *arena) bool { return x.used == 0 && x != keep })
}

// closeEmpty closes the empty arenas.
func (l *arenaList) closeEmpty() error {
	l.mu.Lock()
	drop := l.remove(func(x *arena) bool { return x.used == 0 })
	l.mu.Unlock()
	return l.closeArenas(drop)
}

// end has no further arenas made, and returns the errors that were kept.
func (l *arenaList) end() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.late
	l.closed, l.late = true, nil
	return err
}

// remove takes the arenas out for which drop is true. The caller holds mu, and closes them without it.
func (l *arenaList) remove(drop func(*arena) bool) []*arena {
	var out []*arena
	l.arenas = slices.DeleteFunc(l.arenas, func(x *arena) bool {
		if !drop(x) {
			return false
		}
		out = append(out, x)
		l.held -= x.size
		return true
	})
	if len(out) > 0 {
		l.atlas.chart(l.arenas)
	}
	return out
}

func (l *arenaList) closeArenas(arenas []*arena) error {
	l.atlas.tell(arenas)
	var all error
	for _, ar := range arenas {
		if !l.atlas.keep(ar.id, func() { l.keep(ar.mem.Close()) }) {
			all = errors.Join(all, ar.mem.Close())
		}
	}
	return all
}

// keep saves an error of the system for Close: Put and Release cannot return
// it, and their callers could do nothing about it.
func (l *arenaList) keep(err error) {
	if err == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.late = errors.Join(l.late, err)
}
