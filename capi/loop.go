package main

// #include "boundary.h"
import "C"

import (
	"fmt"
	"time"
	"unsafe"

	"github.com/stepvan/stepvan/capi/internal/numbers"
	"github.com/stepvan/stepvan/particle"
	"github.com/stepvan/stepvan/ps"
)

// loop is a number from stepvan_particle_open to stepvan_particle_close.
type loop struct {
	node *node
	live *particle.Loop
}

func (l *loop) of() *node { return l.node }

// loopEndTime is how long the hooks of a loop may continue after its node was closed.
const loopEndTime = 5 * time.Second

// onLoop is half for a call on a loop.
func onLoop(number cUint64, e *cError, f func(*loop) error) cCode {
	return onMade(&loops, "loop", number, e, f)
}

// goParticleOpen implements
//
//	int32_t stepvan_particle_open(uint64_t node, const stepvan_particle_options *options, uint64_t *loop,
//	    stepvan_error *error);
//
//export goParticleOpen
func goParticleOpen(id cUint64, options *C.stepvan_particle_options, number *cUint64, e *cError) cCode {
	return onPeer(id, e, func(n *node) error {
		if number == nil {
			return isNull("loop")
		}
		if err := n.checkRunning(); err != nil {
			return err
		}
		o, err := loopOptions(options, n.live.Load())
		if err != nil {
			return err
		}
		l := &loop{node: n}
		if l.live, err = particle.Open(n.peer, o); err != nil {
			return err
		}
		id := loops.Put(l)
		if id == 0 {
			_ = l.end(loopEndTime)
			return tooMany("loops")
		}
		*number = cUint64(id)
		return nil
	})
}

// loopOptions converts the options of C.
func loopOptions(c *cLoopOptions, live *ps.Node) (o particle.Options, err error) {
	o = particle.Options{Pull: true, Memory: live.Memory(), Recover: func() {
		if v := recover(); v != nil {
			_ = live.Panicked(v, "run a loop of particles")
		}
	}}
	if c == nil {
		return o, nil
	}
	switch {
	case c.flags&^flagAllowPickled != 0 || c.reserved != 0:
		return o, invalid("options: flags: some do not exist (got %#x and %#x, want STEPVAN_PARTICLE_ALLOW_PICKLED at most)", c.flags, c.reserved)
	case c.ranks == nil && c.count > 0 || c.count > maxList || c.key == nil && c.key_bytes > 0 || c.key_bytes > maxTensors:
		return o, isNull("ranks and key")
	case c.value_bytes > 1<<62 || c.outstanding > maxList:
		return o, invalid("options: value_bytes and outstanding: they are too large (got %d and %d)", c.value_bytes, c.outstanding)
	}
	o.Devices, o.Driver = int(c.devices), rankOf(c.driver)
	o.AllowPickled = c.flags&flagAllowPickled != 0
	if c.ranks != nil {
		o.Ranks = ranksOf(list[uint32](unsafe.Pointer(c.ranks), c.count))
	}
	if c.key != nil {
		o.Key = append([]byte{}, list[byte](c.key, c.key_bytes)...)
	}
	o.ValueBytes, o.Outstanding = int64(c.value_bytes), int(c.outstanding)
	return o, nil
}

// goParticleClose implements
//
//	int32_t stepvan_particle_close(uint64_t loop, int64_t timeout_ns, stepvan_error *error);
//
//export goParticleClose
func goParticleClose(number cUint64, limit cInt64, e *cError) cCode {
	return onLoop(number, e, func(l *loop) error {
		if err := l.end(duration(limit)); err != nil {
			return err
		}
		loops.Take(numbers.ID(number))
		return nil
	})
}

// end ends the loop, and the numbers of its futures and calls.
func (l *loop) end(limit time.Duration) error {
	ctx, cancel := limited(limit)
	defer cancel()
	if err := l.live.Close(ctx); err != nil {
		return err
	}
	l.sweep()
	return nil
}

// sweep ends the numbers of the futures and calls of the loop.
func (l *loop) sweep() {
	for _, f := range futures.TakeIf(func(f *future) bool { return f.loop == l }) {
		f.live.Forget()
	}
	calls.TakeIf(func(c *hooked) bool { return c.loop == l })
}

// goParticleCreate implements
//
//	int32_t stepvan_particle_create(uint64_t loop, uint32_t rank, uint32_t device, uint64_t *particle, uint64_t
//	    *future, stepvan_error *error);
//
//export goParticleCreate
func goParticleCreate(number cUint64, rank, device cUint32, id, f *cUint64, e *cError) cCode {
	return onLoop(number, e, func(l *loop) error {
		if id == nil || f == nil {
			return isNull("particle and future")
		}
		made, live, err := l.live.Create(rankOf(rank), int(device))
		if err != nil {
			return err
		}
		*id = cUint64(made)
		return l.number(live, f)
	})
}

// goParticleList implements
//
//	int32_t stepvan_particle_list(uint64_t loop, stepvan_particle_place *places, uint64_t capacity, uint64_t
//	    *count, stepvan_error *error);
//
//export goParticleList
func goParticleList(number cUint64, places *C.stepvan_particle_place, capacity cUint64, count *cUint64, e *cError) cCode {
	return onLoop(number, e, func(l *loop) error {
		return writeList(unsafe.Pointer(places), capacity, count, func() (all []cPlace, _ error) {
			for _, p := range l.live.Particles() {
				all = append(all, cPlace{particle: cUint64(p.Particle), rank: cUint32(p.Rank), device: cUint32(p.Device)})
			}
			return all, nil
		})
	})
}

// goParticleHook implements
//
//	int32_t stepvan_particle_hook(uint64_t loop, uint64_t particle, const char *name, stepvan_error *error);
//
//export goParticleHook
func goParticleHook(number, id cUint64, name *C.char, e *cError) cCode {
	return onLoop(number, e, func(l *loop) error {
		if name == nil {
			return isNull("name")
		}
		return l.live.Handle(idOf(id), C.GoString(name), nil)
	})
}

// idOf is the number of a particle. One that is too large names none.
func idOf(id cUint64) particle.ID { return particle.ID(min(uint64(id), 1<<62)) }

// goParticleShare implements
//
//	int32_t stepvan_particle_share(uint64_t loop, uint64_t particle, const stepvan_particle_value *value,
//	    uint64_t owner, stepvan_error *error);
//
//export goParticleShare
func goParticleShare(number, id cUint64, value *C.stepvan_particle_value, owner cUint64, e *cError) cCode {
	return onLoop(number, e, func(l *loop) error {
		return l.lend(value, owner, true, func(v particle.Value) error { return l.live.Share(idOf(id), v) })
	})
}

// goParticleViews implements
//
//	int32_t stepvan_particle_views(uint64_t loop, uint64_t particle, uint64_t *views, stepvan_error *error);
//
//export goParticleViews
func goParticleViews(number, id cUint64, views *cUint64, e *cError) cCode {
	return onLoop(number, e, func(l *loop) error {
		if views == nil {
			return isNull("views")
		}
		n, err := l.live.Views(idOf(id))
		if err == nil {
			*views = cUint64(n)
		}
		return err
	})
}

// lend has use take a value of C, with its owner. always is for tensors that are never copied.
func (l *loop) lend(c *cValue, owner cUint64, always bool, use func(particle.Value) error) error {
	b := borrow(owner, l.node)
	v, err := valueOf(c, b)
	lent := always || c != nil && c.flags&flagLent != 0
	if err == nil {
		if lent {
			v.Lent = func() { b.end(true) }
		}
		err = use(v)
	}
	if err != nil || !lent {
		b.end(err == nil)
	}
	return err
}

// valueOf is a value of C.
func valueOf(c *cValue, b *borrowed) (v particle.Value, err error) {
	if c == nil {
		return v, nil
	}
	switch {
	case c.flags&^(flagPickled|flagLent) != 0 || c.reserved != 0 || c.number != 0:
		return v, invalid("value: flags: some do not exist (got %#x, want STEPVAN_PARTICLE_PICKLED and STEPVAN_PARTICLE_LENT at most; number and reserved: 0)", c.flags)
	case c.data == nil && c.bytes > 0 || !addressable(c.data, uint64(c.bytes)) || c.tensors == nil && c.count > 0:
		return v, isNull("data and tensors")
	case c.count > particle.MaxTensors:
		return v, invalid("value: there are too many tensors (got %d, want at most %d)", c.count, particle.MaxTensors)
	}
	v.Data, v.Pickled = list[byte](c.data, c.bytes), c.flags&flagPickled != 0
	all := list[cView](unsafe.Pointer(c.tensors), c.count)
	for i := range all {
		t, err := b.view(&all[i])
		if err != nil {
			return v, fmt.Errorf("tensor %d: %w", i, err)
		}
		v.Tensors = append(v.Tensors, t)
	}
	return v, nil
}
