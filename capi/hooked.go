package main

// #include "boundary.h"
import "C"

import (
	"errors"
	"unsafe"

	"github.com/stepvan/stepvan/capi/internal/numbers"
	"github.com/stepvan/stepvan/particle"
)

// hooked is a number from stepvan_particle_next to stepvan_particle_done: a call that a hook works at.
type hooked struct {
	loop *loop
	live *particle.Call
}

// goParticleNext implements
//
//	int32_t stepvan_particle_next(uint64_t loop, uint32_t device, int64_t timeout_ns, stepvan_particle_call
//	    *call, stepvan_error *error);
//
//export goParticleNext
func goParticleNext(number cUint64, device cUint32, limit cInt64, call *C.stepvan_particle_call, e *cError) cCode {
	return onLoop(number, e, func(l *loop) error {
		if call == nil {
			return isNull("call")
		}
		ctx, cancel := limited(duration(limit))
		defer cancel()
		c, idle, err := l.live.Next(ctx, int(device))
		if err != nil {
			return err
		}
		id := calls.Put(&hooked{l, c})
		if id == 0 {
			_ = c.Done(particle.Value{}, errors.New("too many calls have not ended"))
			return tooMany("calls")
		}
		*call = cCall{
			call: cUint64(id), particle: cUint64(c.Particle()), from: cInt64(c.From()), chain: cUint64(c.Chain()),
			kind: cUint32(c.Kind()), idle: cUint32(idle),
		}
		write(unsafe.Slice((*byte)(unsafe.Pointer(&call.name)), len(call.name)), c.Name())
		v, release := c.Hold()
		if err := show(&call.value, v, release); err != nil {
			calls.Take(id)
			_ = c.Done(particle.Value{}, err)
			return err
		}
		return nil
	})
}

// goParticleDone implements
//
//	int32_t stepvan_particle_done(uint64_t loop, uint64_t call, const stepvan_particle_value *value, const char
//	    *failure, uint64_t owner, stepvan_error *error);
//
//export goParticleDone
func goParticleDone(number, id cUint64, value *C.stepvan_particle_value, failure *C.char, owner cUint64, e *cError) cCode {
	return onLoop(number, e, func(l *loop) error {
		if _, err := l.call(id); err != nil || id == 0 {
			return missing(&calls, "call", "has ended", id)
		}
		c, ok := calls.Take(numbers.ID(id))
		if !ok {
			return missing(&calls, "call", "has ended", id)
		}
		if failure != nil {
			return l.lend(nil, owner, false, func(particle.Value) error {
				return c.live.Done(particle.Value{}, errors.New(C.GoString(failure)))
			})
		}
		ended := false
		err := l.lend(value, owner, false, func(v particle.Value) error {
			ended = true
			return c.live.Done(v, nil)
		})
		if !ended { // the value is not one
			_ = c.live.Done(particle.Value{}, err)
		}
		return err
	})
}

// shown is a number from the call that gave a value to stepvan_particle_release.
type shown struct {
	block   unsafe.Pointer // its views and bytes
	release func()
}

// show writes a value of Go to one of C, with a number.
func show(c *cValue, v particle.Value, release func()) error {
	*c = cValue{}
	if v.Pickled {
		c.flags |= flagPickled
	}
	if v.View {
		c.flags |= flagView
	}
	head := len(v.Tensors) * C.sizeof_stepvan_view
	if head+len(v.Data) == 0 {
		release()
		return nil
	}
	block := C.boundary_alloc(C.size_t(head + len(v.Data)))
	if block == nil {
		release()
		return &coded{codeNoMemory, errors.New("the system has no memory left for a value")}
	}
	all := list[cView](block, cUint64(len(v.Tensors)))
	for i := range all {
		all[i] = cView{}
		t := v.Tensors[i].Memory()
		if b := t.Bytes(); len(b) > 0 {
			all[i].data = unsafe.Pointer(unsafe.SliceData(b))
		}
		dims := v.Tensors[i].Dims()
		all[i].dtype, all[i].rank = cUint8(v.Tensors[i].DType()), cUint8(len(dims))
		copy(unsafe.Slice((*int64)(unsafe.Pointer(&all[i].shape)), maxRank), dims)
		copy(unsafe.Slice((*int64)(unsafe.Pointer(&all[i].strides)), maxRank), v.Tensors[i].Strides())
	}
	if len(all) > 0 {
		c.tensors, c.count = (*cView)(block), cUint64(len(all))
	}
	if len(v.Data) > 0 {
		c.data, c.bytes = unsafe.Add(block, head), cUint64(len(v.Data))
		copy(list[byte](c.data, c.bytes), v.Data)
	}
	id := values.Put(&shown{block, release})
	if id == 0 {
		C.free(block)
		release()
		return tooMany("values")
	}
	c.number = cUint64(id)
	return nil
}

// goParticleRelease implements
//
//	int32_t stepvan_particle_release(uint64_t value, stepvan_error *error);
//
//export goParticleRelease
func goParticleRelease(number cUint64, e *cError) cCode {
	return half(e, func() error {
		v, ok := values.Take(numbers.ID(number))
		if !ok {
			return missing(&values, "value", "was released", number)
		}
		v.release()
		C.free(v.block)
		return nil
	})
}
