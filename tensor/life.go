package tensor

// life is the state of a region in one word, so that every change is one atomic
// operation. The upper half is the generation. The lower half has two bits, and
// the number of operations that hold the region. There are generations and no
// table of slots: tensors refer to their region by pointer, and no ID leaves the
// process.
type life uint64

const (
	holdsMask life = 1<<30 - 1
	openBit   life = 1 << 30 // the memory may be used
	putBit    life = 1 << 31 // the owner has put it back; the last Release ends it
	genShift       = 32

	firstLife = 1<<genShift | openBit
)

func (l life) generation() uint32 { return uint32(l >> genShift) }
func (l life) open() bool         { return l&openBit != 0 }
func (l life) put() bool          { return l&putBit != 0 }
func (l life) holds() int         { return int(l & holdsMask) }

// ended is the life of a region whose memory goes back.
func (l life) ended() life { return l &^ (openBit | putBit) }

// next is the life of an ended region that is handed out again.
func (l life) next() life { return life(l.generation()+1)<<genShift | openBit }

func (r *Region) life() life { return life(r.state.Load()) }

func (r *Region) swap(from, to life) bool {
	return r.state.CompareAndSwap(uint64(from), uint64(to))
}

// check says why a view of generation gen cannot be used.
func (r *Region) check(gen uint32) error { return r.life().check(gen) }

func (l life) check(gen uint32) error {
	if l.generation() != gen {
		return errRegionStale
	}
	if !l.open() {
		return errRegionClosed
	}
	return nil
}

// Retain holds the region for an operation, until [Region.Release]. Meanwhile [Region.Close] returns [stepvan.ErrBusy],
// and [Allocator.Put] takes no effect. Retain returns [stepvan.ErrClosed] when the region has ended. Budget: one
// atomic, 0 allocations.
func (r *Region) Retain() error { return r.retain(r.Generation()) }

func (r *Region) retain(gen uint32) error {
	for {
		l := r.life()
		if err := l.check(gen); err != nil {
			return err
		}
		if l&holdsMask == holdsMask {
			return errRegionBusy
		}
		if r.swap(l, l+1) {
			return nil
		}
	}
}

// Release ends one Retain. After [Allocator.Put], the last Release returns the memory to the allocator. A Release
// without a Retain only raises [Stats].Misuses. Budget: one atomic, 0 allocations.
func (r *Region) Release() {
	for {
		l := r.life()
		if l.holds() == 0 {
			r.misused()
			return
		}
		to := l - 1
		last := l.put() && l.holds() == 1
		if last {
			to = to.ended()
		}
		if r.swap(l, to) {
			if last {
				r.leave()
			}
			return
		}
	}
}

// Busy reports whether an operation holds the region.
func (r *Region) Busy() bool { return r.life().holds() > 0 }

// giveBack ends the region for its owner, at the latest with the last Release. It returns false when the owner had done
// so before.
func (r *Region) giveBack() bool {
	for {
		l := r.life()
		if !l.open() || l.put() {
			return false
		}
		to := l | putBit
		if l.holds() == 0 {
			to = l.ended()
		}
		if r.swap(l, to) {
			if l.holds() == 0 {
				r.leave()
			}
			return true
		}
	}
}

// leave gives back the memory of a region that was put back and that no operation holds.
func (r *Region) leave() {
	if r.window != nil {
		r.window.gone()
		return
	}
	r.alloc.recycle(r)
}

// Close ends the region and returns its memory. While operations hold the region, Close returns [stepvan.ErrBusy] and
// changes nothing, and the caller can try again. Close of a closed region returns nil. For the region of a [Window] it
// returns [stepvan.ErrNotSupported].
func (r *Region) Close() error {
	if r.window != nil && r.window.gone != nil {
		return errWindow
	}
	for {
		l := r.life()
		if !l.open() {
			return nil
		}
		if l.holds() > 0 {
			return errRegionBusy
		}
		if r.swap(l, l.ended()) {
			return r.discard()
		}
	}
}

// discard gives the memory of an ended region up.
func (r *Region) discard() error {
	if r.window != nil {
		r.window.owner = nil
		return nil
	}
	return r.alloc.free(r)
}

func (r *Region) misused() {
	if r.alloc != nil {
		r.alloc.misuses.Add(1)
	}
}
