package main

// #include "boundary.h"
import "C"

import (
	"errors"
	"unsafe"

	"github.com/stepvan/stepvan/capi/internal/numbers"
	"github.com/stepvan/stepvan/particle"
)

// future is a number from the call that it is for to stepvan_particle_forget.
type future struct {
	loop *loop
	live *particle.Future
}

// number gives a future a number, or forgets it.
func (l *loop) number(live *particle.Future, number *cUint64) error {
	id := futures.Put(&future{l, live})
	if id == 0 {
		live.Forget()
		return tooMany("futures")
	}
	*number = cUint64(id)
	return nil
}

// future returns the future of this loop with a number.
func (l *loop) future(number cUint64) (*particle.Future, error) {
	f, ok := futures.Get(numbers.ID(number))
	if !ok || f.loop != l {
		return nil, missing(&futures, "future", "was forgotten", number)
	}
	return f.live, nil
}

// call returns the call of this loop with a number, and nil for 0.
func (l *loop) call(number cUint64) (*particle.Call, error) {
	if number == 0 {
		return nil, nil
	}
	c, ok := calls.Get(numbers.ID(number))
	if !ok || c.loop != l {
		return nil, missing(&calls, "call", "has ended", number)
	}
	return c.live, nil
}

// goParticleSend implements
//
//	int32_t stepvan_particle_send(uint64_t loop, uint64_t call, int64_t from, uint64_t particle, const char
//	    *name, const stepvan_particle_value *value, uint64_t owner, uint64_t *future, stepvan_error *error);
//
//export goParticleSend
func goParticleSend(number, call cUint64, from cInt64, to cUint64, name *C.char, value *C.stepvan_particle_value, owner cUint64, f *cUint64, e *cError) cCode {
	return onLoop(number, e, func(l *loop) error {
		if name == nil || f == nil {
			return isNull("name and future")
		}
		c, err := l.call(call)
		if err != nil {
			return err
		}
		var live *particle.Future
		err = l.lend(value, owner, false, func(v particle.Value) (err error) {
			if c == nil {
				live, err = l.live.Send(particle.ID(from), idOf(to), C.GoString(name), v)
			} else {
				live, err = c.SendFrom(particle.ID(from), idOf(to), C.GoString(name), v)
			}
			return err
		})
		if err != nil {
			return err
		}
		return l.number(live, f) // without a number the call continues, and its owner comes back
	})
}

// goParticleGet implements
//
//	int32_t stepvan_particle_get(uint64_t loop, uint64_t call, int64_t from, uint64_t particle, uint64_t
//	    *future, stepvan_error *error);
//
//export goParticleGet
func goParticleGet(number, call cUint64, from cInt64, id cUint64, f *cUint64, e *cError) cCode {
	return onLoop(number, e, func(l *loop) error {
		if f == nil {
			return isNull("future")
		}
		c, err := l.call(call)
		if err != nil {
			return err
		}
		var live *particle.Future
		if c == nil {
			live, err = l.live.Get(particle.ID(from), idOf(id))
		} else {
			live, err = c.GetFrom(particle.ID(from), idOf(id))
		}
		if err != nil {
			return err
		}
		return l.number(live, f)
	})
}

// goParticleWait implements
//
//	int32_t stepvan_particle_wait(uint64_t loop, uint64_t call, const uint64_t *futures, uint64_t count, int64_t
//	    timeout_ns, stepvan_error *error);
//
//export goParticleWait
func goParticleWait(number, call cUint64, all *cUint64, count cUint64, limit cInt64, e *cError) cCode {
	return onLoop(number, e, func(l *loop) error {
		if all == nil && count > 0 || count > maxList {
			return isNull("futures")
		}
		c, err := l.call(call)
		if err != nil {
			return err
		}
		live := make([]*particle.Future, count)
		for i, id := range list[uint64](unsafe.Pointer(all), count) {
			if live[i], err = l.future(cUint64(id)); err != nil {
				return err
			}
		}
		ctx, cancel := limited(duration(limit))
		defer cancel()
		if c == nil {
			return l.live.Wait(ctx, live...)
		}
		return c.Wait(ctx, live...)
	})
}

// goParticleIsDone implements
//
//	int32_t stepvan_particle_is_done(uint64_t loop, uint64_t future, int32_t *done, stepvan_error *error);
//
//export goParticleIsDone
func goParticleIsDone(number, id cUint64, done *cInt32, e *cError) cCode {
	return onLoop(number, e, func(l *loop) error {
		f, err := l.future(id)
		if err != nil {
			return err
		}
		return writeTruth(done, f.Done)
	})
}

// goParticleNotify implements
//
//	int32_t stepvan_particle_notify(uint64_t loop, uint64_t future, uint64_t queue, uint64_t token,
//	    stepvan_error *error);
//
//export goParticleNotify
func goParticleNotify(number, id, queue, token cUint64, e *cError) cCode {
	return onLoop(number, e, func(l *loop) error {
		f, err := l.future(id)
		if err != nil {
			return err
		}
		q, ok := queues.Get(numbers.ID(queue))
		if !ok {
			return noQueue(queue)
		}
		f.Notify(func() { q.put(uint64(token)) })
		return nil
	})
}

// goParticleResult implements
//
//	int32_t stepvan_particle_result(uint64_t loop, uint64_t future, stepvan_particle_value *value, stepvan_error
//	    *error);
//
//export goParticleResult
func goParticleResult(number, id cUint64, value *C.stepvan_particle_value, e *cError) cCode {
	return onLoop(number, e, func(l *loop) error {
		if value == nil {
			return isNull("value")
		}
		f, err := l.future(id)
		if err != nil {
			return err
		}
		v, release, err := f.Hold()
		if err != nil {
			return err
		}
		return show(value, v, release)
	})
}

// goParticleFailure implements
//
//	int32_t stepvan_particle_failure(uint64_t loop, uint64_t future, char *text, uint64_t capacity, uint64_t
//	    *bytes, stepvan_error *error);
//
//export goParticleFailure
func goParticleFailure(number, id cUint64, text *C.char, capacity cUint64, n *cUint64, e *cError) cCode {
	return onLoop(number, e, func(l *loop) error {
		f, err := l.future(id)
		if err != nil {
			return err
		}
		to, err := array[byte](unsafe.Pointer(text), capacity, n)
		if err != nil {
			return err
		}
		if !f.Done() {
			_, err := f.Result()
			return err
		}
		why := ""
		_, err = f.Result()
		var hook *particle.HookError
		switch {
		case errors.As(err, &hook):
			why = hook.Text
		case err != nil:
			why = err.Error()
		}
		if *n = cUint64(len(why)); *n > capacity {
			return tooSmall(len(why), capacity)
		}
		copy(to, why)
		return nil
	})
}

// goParticleForget implements
//
//	int32_t stepvan_particle_forget(uint64_t loop, uint64_t future, stepvan_error *error);
//
//export goParticleForget
func goParticleForget(number, id cUint64, e *cError) cCode {
	return onLoop(number, e, func(l *loop) error {
		if _, err := l.future(id); err != nil {
			return err
		}
		if f, ok := futures.Take(numbers.ID(id)); ok {
			f.live.Forget()
		}
		return nil
	})
}
