package tensor

import (
	"errors"
	"fmt"
	"slices"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/shm"
	"github.com/stepvan/stepvan/internal/text"
)

// firstArenaBytes is the size of the first arena. Each further one is as large
// as all before it together, up to Options.ArenaBytes: what a process takes
// stays within twice what it uses, and the arenas stay few.
const firstArenaBytes = 4 << 20

// grow makes an arena with room for n bytes and cuts them from it. The caller
// holds growing, not mu: making an arena takes milliseconds.
func (a *Allocator) grow(n, align int64) (span, error) {
	size := a.arenaSize(n)
	if !a.fits(size) {
		if s, ok, err := a.reclaim(n, align); ok || err != nil {
			return s, err
		}
		if size = a.arenaSize(n); !a.fits(size) {
			size = roundUp(n, a.unit)
		}
		if !a.fits(size) {
			return span{}, a.errFull(n)
		}
	}
	mem, err := a.create(size)
	if err != nil {
		return span{}, err
	}
	ar := newArena(mem, n > a.opt.ArenaBytes)
	s, _ := ar.take(n, align)
	return s, a.publish(ar)
}

// arenaSize returns the size of the next arena, which must hold n bytes.
func (a *Allocator) arenaSize(n int64) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	usual := min(max(a.held, firstArenaBytes), a.opt.ArenaBytes)
	return roundUp(max(n, usual), a.unit)
}

func (a *Allocator) fits(size int64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.opt.MaxBytes == 0 || size <= a.opt.MaxBytes-a.held
}

// reclaim frees what the pool keeps, and empty arenas if that was not enough.
func (a *Allocator) reclaim(n, align int64) (span, bool, error) {
	if err := a.freeIdle(false); err != nil {
		return span{}, false, err
	}
	if s, ok, err := a.take(n, align); ok || err != nil {
		return s, ok, err
	}
	return span{}, false, a.Trim()
}

func (a *Allocator) errFull(n int64) error {
	s := a.Stats()
	return fmt.Errorf("tensor: allocator %q has taken %d bytes (%d in use) of the %d that %s allows, and %d more do not fit; close regions or raise %s: %w",
		text.Cut(a.opt.Name), s.HeldBytes, s.UsedBytes, a.opt.MaxBytes, a.opt.MaxBytesSetting, n, a.opt.MaxBytesSetting, stepvan.ErrWouldBlock)
}

// create takes memory from the system, in huge pages if they are wanted and there. Where this process may
// have no memory files it is memory that peers cannot map.
func (a *Allocator) create(size int64) (mem *shm.Memory, err error) {
	if a.opt.Near == nil {
		return a.createHere(size)
	}
	a.opt.Near(func() { mem, err = a.createHere(size) })
	return mem, err
}

func (a *Allocator) createHere(size int64) (*shm.Memory, error) {
	a.made++
	name := fmt.Sprintf("stepvan:%s:%d", a.opt.Name, a.made)
	switch a.opt.HugePages {
	case HugePagesRequired:
		return shm.Create(name, size, true)
	case HugePagesAuto:
		huge := roundUp(size, shm.HugePageBytes)
		if !a.fits(huge) {
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

func (a *Allocator) publish(ar *arena) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return errors.Join(a.errClosed(), ar.mem.Close())
	}
	a.arenas = append(a.arenas, ar)
	a.held += ar.size
	a.chart()
	return nil
}

// surplus takes arenas out that are not worth keeping since ar got room: of
// the empty ones only the largest stays. The caller holds mu, and closes what
// it gets without it.
func (a *Allocator) surplus(ar *arena) []*arena {
	if ar.used > 0 {
		return nil
	}
	if ar.own || a.closed {
		return a.remove(func(x *arena) bool { return x == ar })
	}
	keep := ar
	for _, x := range a.arenas {
		if x.used == 0 && x.size > keep.size {
			keep = x
		}
	}
	return a.remove(func(x *arena) bool { return x.used == 0 && x != keep })
}

// remove takes the arenas out for which drop is true. The caller holds mu.
func (a *Allocator) remove(drop func(*arena) bool) []*arena {
	var out []*arena
	a.arenas = slices.DeleteFunc(a.arenas, func(x *arena) bool {
		if !drop(x) {
			return false
		}
		out = append(out, x)
		a.held -= x.size
		return true
	})
	if len(out) > 0 {
		a.chart()
	}
	return out
}

func (a *Allocator) closeArenas(arenas []*arena) error {
	a.atlas.tell(arenas)
	var all error
	for _, ar := range arenas {
		all = errors.Join(all, ar.mem.Close())
	}
	return all
}

// Trim returns idle memory to the system: the memory that the pool keeps, and all empty arenas.
func (a *Allocator) Trim() error {
	err := a.freeIdle(false)
	a.mu.Lock()
	drop := a.remove(func(x *arena) bool { return x.used == 0 })
	a.mu.Unlock()
	return errors.Join(err, a.closeArenas(drop))
}
