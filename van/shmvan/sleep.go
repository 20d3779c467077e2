package shmvan

import (
	crand "crypto/rand"
	"sync/atomic"
	"unsafe"

	"github.com/stepvan/stepvan/internal/shm"
)

// sleepPage is the page of a van that its peers map for reading: it tells them whether the van sleeps.
type sleepPage struct {
	mem    *shm.Memory
	asleep *atomic.Uint64
	armed  atomic.Bool
	sleeps uint64 // number of the last sleep. The poller's
}

// open makes the page, with the nonce of h.
func (p *sleepPage) open(h *hello, o *Options) (err error) {
	if p.mem, err = shm.CreateOneWriter("stepvan:van", pageBytes); err != nil {
		return err
	}
	page := p.mem.Bytes()
	p.asleep = shm.Word64(page, offAsleep)
	nonce := page[offNonce : offNonce+len(h.Nonce)]
	_, _ = crand.Read(nonce) // never fails
	copy(h.Nonce[:], nonce)
	if !o.NoForeign {
		h.At = uint64(uintptr(unsafe.Pointer(&nonce[0])))
	}
	return nil
}

func (p *sleepPage) arm() {
	p.sleeps += 2
	p.armed.Store(true)
	p.asleep.Store(p.sleeps - 1)
}

func (p *sleepPage) disarm() {
	p.armed.Store(false)
	p.asleep.Store(p.sleeps)
}

func (p *sleepPage) close() {
	if p.mem != nil {
		p.asleep = new(atomic.Uint64)
		_ = p.mem.Close()
	}
}
