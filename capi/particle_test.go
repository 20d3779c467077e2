//go:build cgo

package main

import (
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// stage is two loops of C, as two programs would have them.
type stage struct {
	*ring
	loops   []cUint64
	threads sync.WaitGroup
}

func newStage(t *testing.T, flags uint32, keys ...string) *stage {
	s := &stage{ring: newRing(t, 2)}
	for i, id := range s.peers {
		o := &cLoopOptions{devices: 2, flags: cUint32(flags)}
		if i < len(keys) {
			o.key, o.key_bytes = unsafe.Pointer(pinnedText(&s.cluster, keys[i])), cUint64(len(keys[i]))
		}
		s.pin.Pin(o)
		loop := pinned[cUint64](&s.cluster, 1)
		s.ok(goParticleOpen(id, o, loop, s.e))
		s.loops = append(s.loops, *loop)
	}
	t.Cleanup(s.end)
	return s
}

func (s *stage) end() {
	s.all(s.loops, func(id cUint64, e *cError) {
		if code := goParticleClose(id, 10e9, e); code != codeOK && code != codeStale && code != codeClosed {
			s.t.Error(chars(&e.message))
		}
	})
	s.threads.Wait()
}

// place creates a particle, and waits until all loops know of it.
func (s *stage) place(rank, device int) cUint64 {
	id, f := pinned[cUint64](&s.cluster, 1), pinned[cUint64](&s.cluster, 1)
	s.ok(goParticleCreate(s.loops[0], cUint32(rank), cUint32(device), id, f, s.e))
	s.ok(goParticleWait(s.loops[0], 0, f, 1, 30e9, s.e))
	s.ok(goParticleResult(s.loops[0], *f, new(cValue), s.e))
	s.ok(goParticleForget(s.loops[0], *f, s.e))
	return *id
}

// value makes a value of C.
func (s *stage) value(text string, tensors ...cView) *cValue {
	v := &cValue{}
	s.pin.Pin(v)
	if text != "" {
		v.data, v.bytes = unsafe.Pointer(pinnedText(&s.cluster, text)), cUint64(len(text))
	}
	if len(tensors) > 0 {
		s.pin.Pin(&tensors[0])
		v.tensors, v.count = &tensors[0], cUint64(len(tensors))
	}
	return v
}

func textOf(v *cValue) string { return string(list[byte](v.data, v.bytes)) }

// thread runs calls of a device until the loop is closed. A thread that waits has another one in its place.
func (s *stage) thread(rank, device int, hook func(loop cUint64, c *cCall, e *cError) (result string, failure string)) {
	s.threads.Go(func() {
		e := new(cError)
		for {
			c := new(cCall)
			switch code := goParticleNext(s.loops[rank], cUint32(device), 50e6, c, e); code {
			case codeOK:
			case codeTimeout:
				continue
			case codeClosed, codeStale:
				return
			default:
				s.t.Errorf("%d %s", code, chars(&e.message))
				return
			}
			result, failure := hook(s.loops[rank], c, e)
			var text *cChar
			if failure != "" {
				b := append([]byte(failure), 0)
				text = (*cChar)(unsafe.Pointer(&b[0]))
			}
			v := &cValue{}
			if result != "" {
				b := []byte(result)
				v.data, v.bytes = unsafe.Pointer(&b[0]), cUint64(len(b))
			}
			if code := goParticleDone(s.loops[rank], c.call, v, text, 0, e); code != codeOK {
				s.t.Errorf("%d %s", code, chars(&e.message))
			}
			if c.value.number != 0 {
				goParticleRelease(c.value.number, e)
			}
		}
	})
}

// ask sends a message from a loop, and waits for its result.
func (s *stage) ask(call cUint64, loop cUint64, to cUint64, name string, v *cValue, e *cError) (string, cCode) {
	f := new(cUint64)
	b := append([]byte(name), 0)
	if code := goParticleSend(loop, call, -1, to, (*cChar)(unsafe.Pointer(&b[0])), v, 0, f, e); code != codeOK {
		return "", code
	}
	defer goParticleForget(loop, *f, new(cError))
	if code := goParticleWait(loop, call, f, 1, 30e9, e); code != codeOK {
		return "", code
	}
	r := new(cValue)
	code := goParticleResult(loop, *f, r, e)
	if code != codeOK {
		return "", code
	}
	defer goParticleRelease(r.number, new(cError))
	return textOf(r), code
}

func TestParticlesOfC(t *testing.T) {
	s := newStage(t, 0)
	a, b := s.place(0, 0), s.place(1, 1)
	require.Equal(t, []cUint64{0, 1}, []cUint64{a, b})
	hook := func(loop cUint64, c *cCall, e *cError) (string, string) {
		switch chars(&c.name) {
		case ".begin": // a asks b, which asks a again
			r, code := s.ask(c.call, loop, 1, ".middle", nil, e)
			if code != codeOK {
				return "", chars(&e.message)
			}
			return "a" + r + textOf(&c.value), ""
		case ".middle":
			r, code := s.ask(c.call, loop, 0, ".end", nil, e)
			if code != codeOK {
				return "", chars(&e.message)
			}
			return "b" + r, ""
		case ".end":
			return "c", ""
		case ".fail":
			return "", "Traceback\n" + strings.Repeat("x", 2000) + "\nValueError: no"
		}
		return "", "unknown"
	}
	for range 2 { // one for a hook that waits, and one for what it waits for
		s.thread(0, 0, hook)
		s.thread(1, 1, hook)
	}
	got, code := s.ask(0, s.loops[0], a, ".begin", s.value("!"), s.e)
	require.Equal(t, codeOK, code, chars(&s.e.message))
	require.Equal(t, "abc!", got)

	count := pinned[cUint64](&s.cluster, 1)
	places := pinned[cPlace](&s.cluster, 2)
	s.ok(goParticleList(s.loops[1], places, 2, count, s.e))
	require.Equal(t, []cPlace{{0, 0, 0}, {1, 1, 1}}, unsafe.Slice(places, *count))

	f := pinned[cUint64](&s.cluster, 1)
	s.ok(goParticleSend(s.loops[0], 0, -1, b, pinnedText(&s.cluster, ".fail"), nil, 0, f, s.e))
	s.ok(goParticleWait(s.loops[0], 0, f, 1, -1, s.e))
	require.Equal(t, codeRemote, goParticleResult(s.loops[0], *f, new(cValue), s.e))
	require.Contains(t, chars(&s.e.message), "Traceback")
	n := pinned[cUint64](&s.cluster, 1)
	require.Equal(t, codeTooSmall, goParticleFailure(s.loops[0], *f, nil, 0, n, s.e))
	whole := pinned[byte](&s.cluster, int(*n))
	s.ok(goParticleFailure(s.loops[0], *f, (*cChar)(unsafe.Pointer(whole)), *n, n, s.e))
	require.True(t, strings.HasSuffix(string(unsafe.Slice(whole, *n)), "x\nValueError: no"))
	s.ok(goParticleForget(s.loops[0], *f, s.e))
	require.Equal(t, codeStale, goParticleForget(s.loops[0], *f, s.e))

	_, code = s.ask(0, s.loops[0], b, "unknown", nil, s.e)
	require.Equal(t, codeInvalid, code)
	require.Contains(t, chars(&s.e.message), "no hook")
	s.ok(goParticleHook(s.loops[1], b, pinnedText(&s.cluster, "unknown"), s.e))
	_, code = s.ask(0, s.loops[0], b, "unknown", nil, s.e)
	require.Equal(t, codeRemote, code)
	_, code = s.ask(0, s.loops[0], 7, ".end", nil, s.e)
	require.Equal(t, codeInvalid, code)
}

func TestNotificationsOfFutures(t *testing.T) {
	s := newStage(t, 0)
	id := s.place(1, 0)
	queue, fd := pinned[cUint64](&s.cluster, 1), pinned[cInt32](&s.cluster, 1)
	s.ok(goQueueOpen(queue, fd, s.e))
	f := pinned[cUint64](&s.cluster, 1)
	s.ok(goParticleSend(s.loops[0], 0, -1, id, pinnedText(&s.cluster, ".x"), nil, 0, f, s.e))
	s.ok(goParticleNotify(s.loops[0], *f, *queue, 99, s.e))
	tokens, count := pinned[cUint64](&s.cluster, 2), pinned[cUint64](&s.cluster, 1)
	s.ok(goQueueTake(*queue, tokens, 2, count, s.e))
	require.Zero(t, *count)
	s.thread(1, 0, func(cUint64, *cCall, *cError) (string, string) { return "y", "" })
	require.Eventually(t, func() bool {
		s.ok(goQueueTake(*queue, tokens, 2, count, s.e))
		return *count == 1
	}, 30*time.Second, time.Millisecond)
	require.EqualValues(t, 99, *tokens)
	done := pinned[cInt32](&s.cluster, 1)
	s.ok(goParticleIsDone(s.loops[0], *f, done, s.e))
	require.EqualValues(t, 1, *done)
	s.ok(goQueueClose(*queue, s.e))
}

func TestViewsOfParticlesOfC(t *testing.T) {
	s := newStage(t, 0)
	for rank := range 2 {
		id := s.place(rank, 0)
		data, memory := pinned[unsafe.Pointer](&s.cluster, 1), pinned[cUint64](&s.cluster, 1)
		s.ok(goAlloc(s.peers[rank], 1<<20, flagZeroed, data, memory, s.e))
		whole := unsafe.Slice((*float64)(*data), 1<<17)
		whole[5] = 7
		v := viewOf(&whole[0], 1<<17, 1)
		v.memory = *memory
		s.thread(rank, 0, func(loop cUint64, c *cCall, e *cError) (string, string) {
			if c.kind != 1 {
				return "", "not a question for a view"
			}
			if code := goParticleShare(loop, c.particle, s.value("two", v), 55, e); code != codeOK {
				return "", chars(&e.message)
			}
			return "", ""
		})
		f, views := pinned[cUint64](&s.cluster, 1), pinned[cUint64](&s.cluster, 1)
		s.ok(goParticleGet(s.loops[0], 0, -1, id, f, s.e))
		s.ok(goParticleWait(s.loops[0], 0, f, 1, 30e9, s.e))
		r := new(cValue)
		s.ok(goParticleResult(s.loops[0], *f, r, s.e))
		require.Equal(t, "two", textOf(r))
		require.EqualValues(t, flagView, r.flags)
		require.EqualValues(t, 1, r.count)
		got := unsafe.Slice((*float64)(r.tensors.data), 1<<17)
		require.Equal(t, 7., got[5])
		s.ok(goParticleViews(s.loops[rank], id, views, s.e))
		require.EqualValues(t, 1, *views, "the view is out")
		s.ok(goParticleForget(s.loops[0], *f, s.e))
		s.ok(goParticleViews(s.loops[rank], id, views, s.e))
		require.EqualValues(t, 1, *views, "the value is not released")
		require.Empty(t, back())
		s.ok(goParticleShare(s.loops[rank], id, nil, 0, s.e))
		require.Empty(t, back(), "a view is out")
		s.ok(goParticleRelease(r.number, s.e))
		require.Eventually(t, func() bool { return len(back()) == 1 }, 30*time.Second, time.Millisecond)
		s.ok(goFree(*memory, s.e))
	}
}

func TestTensorsOfCallsOfC(t *testing.T) {
	s := newStage(t, 0)
	id := s.place(1, 0)
	sum := make(chan float64, 4)
	s.thread(1, 0, func(_ cUint64, c *cCall, _ *cError) (string, string) {
		all := 0.
		for i := range 3 {
			v := unsafe.Slice(c.value.tensors, c.value.count)[0]
			for _, x := range at(&v, i) {
				all += x
			}
		}
		sum <- all
		return "", ""
	})
	for _, columns := range []int{2, 4000} {
		v := s.value("x", *s.view(3, columns, columns+5, 0))
		want := 0.
		for i := range 3 {
			for k := range columns {
				want += float64(i*(columns+5) + k)
			}
		}
		for _, flags := range []cUint32{0, flagLent} {
			v.flags = flags
			f := pinned[cUint64](&s.cluster, 1)
			s.ok(goParticleSend(s.loops[0], 0, -1, id, pinnedText(&s.cluster, ".sum"), v, 66, f, s.e))
			if flags == 0 {
				require.Equal(t, []uint64{66}, back(), "it was copied")
			}
			s.ok(goParticleWait(s.loops[0], 0, f, 1, 30e9, s.e))
			require.Equal(t, want, <-sum)
			if flags != 0 {
				require.Eventually(t, func() bool { return len(back()) == 1 }, 30*time.Second, time.Millisecond)
			}
			s.ok(goParticleForget(s.loops[0], *f, s.e))
		}
	}
}

func TestRefusalsOfParticlesOfC(t *testing.T) {
	s := newStage(t, 0)
	id := s.place(0, 0)
	number := pinned[cUint64](&s.cluster, 1)
	name := pinnedText(&s.cluster, ".x")
	pickled, strange := s.value("x"), s.value("x", *s.view(1, 2, 2, 0))
	pickled.flags = flagPickled
	strange.tensors.dtype = 99
	odd := s.value("x")
	odd.flags = 64
	for text, code := range map[string]func() cCode{
		"this peer has one": func() cCode { return goParticleOpen(s.peers[0], nil, number, s.e) },
		"only a peer talks": func() cCode { return goParticleOpen(s.scheduler, nil, number, s.e) },
		"not the driver":    func() cCode { return goParticleCreate(s.loops[1], 0, 0, number, number, s.e) },
		"has no loop":       func() cCode { return goParticleCreate(s.loops[0], 5, 0, number, number, s.e) },
		"has none":          func() cCode { return goParticleCreate(s.loops[0], 1, 5, number, number, s.e) },
		"flags":             func() cCode { return goParticleSend(s.loops[0], 0, -1, id, name, odd, 77, number, s.e) },
		"tensor 0":          func() cCode { return goParticleSend(s.loops[0], 0, -1, id, name, strange, 77, number, s.e) },
		"not created":       func() cCode { return goParticleSend(s.loops[0], 0, -1, 1<<63, name, nil, 77, number, s.e) },
		"wrong length": func() cCode {
			return goParticleHook(s.loops[0], id, pinnedText(&s.cluster, strings.Repeat("x", 129)), s.e)
		},
		"does not live here": func() cCode { return goParticleShare(s.loops[1], id, nil, 77, s.e) },
		"this loop has none": func() cCode { return goParticleNext(s.loops[0], 2, 0, new(cCall), s.e) },
		"name and future":    func() cCode { return goParticleSend(s.loops[0], 0, -1, id, nil, nil, 77, number, s.e) },
	} {
		if code != nil {
			require.Equal(t, codeInvalid, code(), text)
			require.Contains(t, chars(&s.e.message), text)
			require.Empty(t, back(), text)
		}
	}
	require.Equal(t, codeNotSupported, goParticleSend(s.loops[0], 0, -1, id, name, pickled, 77, number, s.e))
	require.Empty(t, back())
	for _, code := range []cCode{
		goParticleSend(s.loops[0], 5, -1, id, name, nil, 77, number, s.e),
		goParticleWait(s.loops[0], 0, pinned[cUint64](&s.cluster, 1), 1, 0, s.e),
		goParticleDone(s.loops[0], 12345, nil, nil, 77, s.e),
		goParticleDone(s.loops[0], 0, nil, nil, 77, s.e),
		goParticleRelease(12345, s.e), goParticleForget(s.loops[0], 12345, s.e), goParticleClose(12345, 0, s.e),
	} {
		require.Equal(t, codeStale, code)
	}
	require.Empty(t, back())
	require.Equal(t, codeTimeout, goParticleNext(s.loops[0], 0, 1000, new(cCall), s.e))
	f := pinned[cUint64](&s.cluster, 1)
	s.ok(goParticleSend(s.loops[0], 0, -1, id, name, nil, 0, f, s.e))
	require.Equal(t, codeTimeout, goParticleWait(s.loops[0], 0, f, 1, 1000, s.e))
	require.Equal(t, codeBusy, goParticleResult(s.loops[0], *f, new(cValue), s.e))
	c := new(cCall)
	s.ok(goParticleNext(s.loops[0], 0, -1, c, s.e))
	require.Equal(t, codeInvalid, goParticleWait(s.loops[0], c.call, f, 1, -1, s.e))
	require.Contains(t, chars(&s.e.message), "its own result")
	require.Equal(t, codeNotSupported, goParticleDone(s.loops[0], c.call, pickled, nil, 77, s.e))
	require.Empty(t, back())
	require.Equal(t, codeStale, goParticleDone(s.loops[0], c.call, nil, nil, 77, s.e))
	require.Equal(t, codeNotSupported, goParticleResult(s.loops[0], *f, new(cValue), s.e))
}

func TestClosingALoopOfC(t *testing.T) {
	s := newStage(t, 0)
	id := s.place(1, 0)
	f := pinned[cUint64](&s.cluster, 1)
	s.ok(goParticleSend(s.loops[0], 0, -1, id, pinnedText(&s.cluster, ".x"), nil, 0, f, s.e))
	c := new(cCall)
	s.ok(goParticleNext(s.loops[1], 0, -1, c, s.e))
	require.Equal(t, codeTimeout, goParticleClose(s.loops[1], 1000, s.e))
	require.Contains(t, chars(&s.e.message), `".x" of particle 0`)
	s.ok(goParticleWait(s.loops[0], 0, f, 1, 30e9, s.e))
	require.Equal(t, codePeerLost, goParticleResult(s.loops[0], *f, new(cValue), s.e))
	require.Equal(t, "peer 1", chars(&s.e.subject))
	require.Equal(t, codeClosed, goParticleNext(s.loops[1], 0, -1, new(cCall), s.e))
	s.ok(goParticleDone(s.loops[1], c.call, nil, nil, 0, s.e))
	s.ok(goParticleClose(s.loops[1], -1, s.e))
	require.Equal(t, codeStale, goParticleClose(s.loops[1], -1, s.e))
	s.ok(goParticleClose(s.loops[0], -1, s.e))
	require.Equal(t, codeStale, goParticleForget(s.loops[0], *f, s.e))
	loop := pinned[cUint64](&s.cluster, 1)
	for i, node := range s.peers { // a program may open loops again
		s.ok(goParticleOpen(node, nil, loop, s.e))
		s.loops[i] = *loop
	}
	require.EqualValues(t, 0, s.place(1, 0))
}
