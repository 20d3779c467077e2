package registry

import (
	"errors"
	"fmt"
	"sync"

	"github.com/rs/zerolog"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/tensor"
)

// Device is what registers memory. Both methods may block, and may be called concurrently.
type Device interface {
	// Register has the device reach mem until Deregister. An error that is stepvan.ErrNotSupported says that the device
	// cannot reach this memory.
	Register(mem []byte) error
	// Deregister ends one Register of mem. When it returns, the device begins nothing with the memory any more.
	Deregister(mem []byte) error
}

// Arenas finds the memory of an allocator. [*tensor.Allocator] implements it.
type Arenas interface {
	// Find finds the arena that holds all of b, without allocating.
	Find(b []byte) (tensor.Place, bool)
	// Keep has keep decide when the memory of an arena goes back to the system, until stop.
	Keep(keep func(file uint64, unmap func()) bool) (stop func())
}

// Registry is the registered memory of an instance. Any goroutine may call its methods.
type Registry struct {
	devices []Device
	found   index
	streams streams

	mu sync.Mutex
	// +checklocks:mu
	entries map[extent]*entry
	// +checklocks:mu
	arenas []Arenas
	// +checklocks:mu
	stops []func()
	// +checklocks:mu
	closed  bool
	leaving sync.WaitGroup // arenas that the devices are giving up

	// said are the accelerators that the log has told of.
	// +checklocks:mu
	said map[tensor.Device]bool
}

// extent is a range of addresses.
type extent struct{ start, end uintptr }

// entry is memory that is registered, or about to be.
type entry struct {
	mem     []byte
	id      uint64 // as in tensor.Place
	arena   bool
	uses    int           // registrations; Registry.mu guards it
	holds   int           // messages; Registry.mu guards it
	last    tensor.Tensor // that the last registration has left to the messages; Registry.mu guards it
	ready   bool          // it is registered, and in the index; Registry.mu guards it
	vacated bool          // it is in the index no more, and still registered; Registry.mu guards it
	settled chan struct{} // closed when the devices have answered
	err     error         // why the devices refused; valid from settled on
}

// New makes a registry for devices. Without devices all memory counts as registered.
func New(devices []Device, log zerolog.Logger) *Registry {
	return &Registry{
		devices: devices, entries: map[extent]*entry{}, said: map[tensor.Device]bool{}, streams: newStreams(log),
	}
}

// Needed reports whether there is a device that needs memory registered.
func (r *Registry) Needed() bool { return len(r.devices) > 0 }

// Watch has the registry register the arenas of a, when Prepare names them. It is called before Prepare, more than once
// where several allocators hold the tensors of a program.
func (r *Registry) Watch(a Arenas) {
	if !r.Needed() {
		return
	}
	stop := a.Keep(r.giveUpArena)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.arenas, r.stops = append(r.arenas, a), append(r.stops, stop)
}

// Find finds the registered memory that holds all of b. The caller has a hold of the tensor that b belongs to. Budget:
// no lock, 0 allocations.
func (r *Registry) Find(b []byte) (tensor.Place, bool) { return r.found.find(b) }

// Covers reports whether all of b is registered. It is true for nothing, and without devices. The rules of Find hold.
func (r *Registry) Covers(b []byte) bool {
	if !r.Needed() || len(b) == 0 {
		return true
	}
	_, ok := r.found.find(b)
	return ok
}

// Prepare registers the arena of t, unless that is done, or t lies in no arena. It blocks, and no driver calls it. A
// device that refuses an arena is not asked again.
func (r *Registry) Prepare(t *tensor.Tensor) {
	b := t.Bytes()
	if !r.Needed() || len(b) == 0 {
		return
	}
	if e := r.found.entry(b); e == nil || !e.arena && t.Region() != nil && t.Region().Allocated() {
		r.prepare(t)
	}
}

func (r *Registry) prepare(t *tensor.Tensor) {
	if t.Retain() != nil {
		return
	}
	defer t.Release()
	if at, ok := r.arenaOf(t.Bytes()); ok {
		_, _ = r.register(at.Memory, at.File, true)
	}
}

// arenaOf finds the arena that holds all of b.
func (r *Registry) arenaOf(b []byte) (tensor.Place, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.arenas {
		if at, ok := a.Find(b); ok {
			return at, true
		}
	}
	return tensor.Place{}, false
}

// register returns the entry of mem, which the devices have accepted. It blocks until they have answered.
func (r *Registry) register(mem []byte, id uint64, arena bool) (*entry, error) {
	e, first, err := r.enter(mem, id, arena)
	if err != nil {
		return nil, err
	}
	if first {
		e.err = r.askDevices(mem)
		r.settle(e)
	} else {
		<-e.settled
	}
	return e, e.err
}

// enter returns the entry of mem. For the first caller it is a new one, which that caller settles.
func (r *Registry) enter(mem []byte, id uint64, arena bool) (e *entry, first bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, false, stepvan.ErrClosed
	}
	x := extentOf(mem)
	e = r.entries[x]
	if first = e == nil || e.arena != arena; first {
		if arena {
			r.vacate(x)
		}
		e = &entry{mem: mem, id: id, arena: arena, settled: make(chan struct{})}
		r.entries[x] = e
	}
	e.uses++
	return e, first, nil
}

// vacate takes memory out of the index where an arena is. The memory was freed before the arena was mapped there, and
// its registration has not ended yet. Under Registry.mu.
// +checklocks:r.mu
func (r *Registry) vacate(x extent) {
	for at, e := range r.entries {
		if !e.arena && at.start < x.end && x.start < at.end {
			e.vacated = true
			r.remove(e)
		}
	}
}

// settle notes the answer of the devices. Memory that the program may register again is forgotten after a refusal.
func (r *Registry) settle(e *entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if x := extentOf(e.mem); r.entries[x] == e {
		if e.ready = e.err == nil; !e.ready && !e.arena {
			delete(r.entries, x)
		}
		r.found.build(r.entries)
	}
	close(e.settled)
}

// remove takes e out of the index, so that nobody begins anything with it. Under Registry.mu.
// +checklocks:r.mu
func (r *Registry) remove(e *entry) {
	delete(r.entries, extentOf(e.mem))
	r.found.build(r.entries)
}

// askDevices registers mem with all devices, or with none.
func (r *Registry) askDevices(mem []byte) error {
	for i, d := range r.devices {
		if err := d.Register(mem); err != nil {
			for _, other := range r.devices[:i] {
				err = errors.Join(err, other.Deregister(mem))
			}
			return fmt.Errorf("%d bytes at %p: the device refuses them: %w", len(mem), mem, err)
		}
	}
	return nil
}

// giveUp has the devices give e up, which is in the index no more. It blocks.
func (r *Registry) giveUp(e *entry) (err error) {
	<-e.settled
	if e.err != nil {
		return nil
	}
	return r.deregisterAll(e.mem)
}

// deregisterAll ends one registration of mem with all devices.
func (r *Registry) deregisterAll(mem []byte) (err error) {
	for _, d := range r.devices {
		err = errors.Join(err, d.Deregister(mem))
	}
	return err
}

// giveUpArena has the devices give up an arena that is about to go back to the system, and unmaps it then. It reports
// false for arenas that are not registered. The caller may hold any lock, so another goroutine waits for the devices.
func (r *Registry) giveUpArena(file uint64, unmap func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.entries {
		if e.arena && e.id == file {
			r.remove(e)
			r.leaving.Go(func() {
				_ = r.giveUp(e) // the memory goes in any case
				unmap()
			})
			return true
		}
	}
	return false
}

// Close has the devices give up everything. Registrations still hold their tensors. Idempotent.
func (r *Registry) Close() error {
	r.mu.Lock()
	r.closed = true
	var all []*entry
	for _, e := range r.entries {
		all = append(all, e)
	}
	clear(r.entries)
	r.found.build(r.entries)
	stops := r.stops
	r.stops = nil
	r.mu.Unlock()
	var err error
	for _, e := range all {
		err = errors.Join(err, r.giveUp(e))
	}
	for _, stop := range stops {
		stop()
	}
	r.leaving.Wait()
	r.streams.lines.End()
	return err
}
