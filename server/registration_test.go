package server_test

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	. "github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/van/memvan"
	"github.com/stepvan/stepvan/worker"
)

// devices are the devices of a cluster, by instance.
type devices struct {
	begin func(register bool, mem []byte) error // of new devices
	mu    sync.Mutex
	// +checklocks:mu
	all map[string]*memvan.Device
}

func (d *devices) of(instance string) *memvan.Device {
	begin := d.begin
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.all[instance] == nil {
		if d.all == nil {
			d.all = map[string]*memvan.Device{}
		}
		d.all[instance] = &memvan.Device{Begin: begin}
	}
	return d.all[instance]
}

// count returns how many registrations an instance has.
func (d *devices) count(i Instance) int {
	_, n := d.of(i.Name).Registered()
	return n
}

// The arenas of a program are registered when it first names a tensor in one, and then payload is written.
func TestArenasAreRegisteredByThoseWhoNameThem(t *testing.T) {
	for _, copies := range []bool{false, true} {
		t.Run(fmt.Sprintf("RespondCopy %v", copies), func(t *testing.T) {
			all := new(devices)
			v, seen := Watch(Registered(all.of))
			c := New(t, Options{Van: v})
			w, s := c.Workers[0], c.Servers[0]
			require.Zero(t, all.count(w.Instance)+all.count(s.Instance))
			buffer := shared(t, s.Instance, 0, many)
			registered, err := s.RegisterRecvBuffer(buffer, []stepvan.Rank{0}, Keys(1))
			require.NoError(t, err)
			require.Equal(t, 1, all.count(s.Instance), "before anything is announced")
			push, pull, answer := shared(t, w.Instance, 3, many), shared(t, w.Instance, 0, many), shared(t, s.Instance, 4, many)
			if copies {
				answer = Floats(t, make([]float32, many)...)
				fill(t, answer, 4)
			}
			const rounds = 5
			for range rounds {
				h, err := w.PushPull(List(push), Keys(1), List(pull), Keys(2))
				require.NoError(t, err)
				r := take(t, s, stepvan.LockStep)[0]
				requireFilled(t, 3, r.Pushes()[0], "push")
				if copies {
					_, borrowed, err := s.RespondCopy(List(answer), r.ID)
					require.NoError(t, err)
					require.False(t, borrowed)
				} else {
					respond(t, s, r.ID, answer)
				}
				require.NoError(t, h.Wait(Context(t)))
				requireFilled(t, 4, pull, "answer")
			}
			require.EqualValues(t, 2*rounds, seen.Written.Load())
			require.Zero(t, seen.Bytes.Load())
			require.Equal(t, 1, all.count(w.Instance))
			require.NoError(t, registered.Unregister())
		})
	}
}

// Memory outside of the arenas is reached when the program has registered it, and goes another way before and after.
func TestForeignMemoryThatIsRegistered(t *testing.T) {
	all := new(devices)
	v, seen := Watch(Registered(all.of))
	c := New(t, Options{Van: v})
	w, s := c.Workers[0], c.Servers[0]
	zeros := func() tensor.Tensor { return Floats(t, make([]float32, many)...) }
	buffer, push, pull, answer := zeros(), zeros(), zeros(), zeros()
	fill(t, push, 3)
	fill(t, answer, 4)
	registered, err := s.RegisterRecvBuffer(buffer, []stepvan.Rank{0}, Keys(1))
	require.NoError(t, err)
	exchange := func(written int64) {
		t.Helper()
		clear(pull.Bytes())
		before := seen.Written.Load()
		h, err := w.PushPull(List(push), Keys(1), List(pull), Keys(2))
		require.NoError(t, err)
		r := take(t, s, stepvan.LockStep)[0]
		requireFilled(t, 3, r.Pushes()[0], "push")
		respond(t, s, r.ID, answer)
		require.NoError(t, h.Wait(Context(t)))
		requireFilled(t, 4, pull, "answer")
		require.Equal(t, written, seen.Written.Load()-before)
	}
	exchange(0)
	source, err := w.Register(push)
	require.NoError(t, err)
	exchange(1)
	room, err := w.Register(pull)
	require.NoError(t, err)
	exchange(1)
	sink, err := s.Register(answer)
	require.NoError(t, err)
	again, err := s.Register(answer)
	require.NoError(t, err)
	require.Equal(t, answer, again.Tensor())
	exchange(2)
	require.NoError(t, sink.Close())
	require.NoError(t, sink.Close())
	exchange(2)
	require.NoError(t, again.Close())
	exchange(1)
	require.NoError(t, room.Close())
	require.NoError(t, room.Close())
	require.NoError(t, source.Close())
	exchange(0)
	require.EqualValues(t, 5, w.Stats().Streamed.Tensors, "two pushes and three pulls")
	require.EqualValues(t, 5*4*many, w.Stats().Streamed.Bytes)
	require.EqualValues(t, 2, s.Stats().Streamed.Tensors, "answers to pulls that say where they belong")
	require.Equal(t, 1, all.count(s.Instance), "the receive buffer")
	require.NoError(t, registered.Unregister())
	require.Zero(t, all.count(w.Instance)+all.count(s.Instance))
	exchange(0)
}

// One unregistered scalar travels with the head. The rest of its request and of its response is written.
func TestAnUnregisteredScalar(t *testing.T) {
	all := new(devices)
	v, seen := Watch(Registered(all.of))
	c := New(t, Options{Van: v})
	w, s := c.Workers[0], c.Servers[0]
	buffer := shared(t, s.Instance, 0, 2*many)
	_, err := s.RegisterRecvBuffer(buffer, []stepvan.Rank{0, 0}, Keys(1, 2))
	require.NoError(t, err)
	push, scalar := shared(t, w.Instance, 3, many), Floats(t, 5)
	pulls := List(shared(t, w.Instance, 0, many), Floats(t, 0), shared(t, w.Instance, 0, 1))
	h, err := w.PushPull(List(push, scalar), Keys(1, 2), pulls, Keys(3, 4, 5))
	require.NoError(t, err)
	r := take(t, s, stepvan.LockStep)[0]
	requireFilled(t, 3, r.Pushes()[0], "push")
	require.Equal(t, []float32{5}, Values(t, r.Pushes()[1]))
	respond(t, s, r.ID, shared(t, s.Instance, 6, many), Floats(t, 7), Floats(t, 8))
	require.NoError(t, h.Wait(Context(t)))
	requireFilled(t, 6, pulls[0], "answer")
	require.Equal(t, []float32{7, 8}, []float32{Values(t, pulls[1])[0], Values(t, pulls[2])[0]})
	require.EqualValues(t, 2, seen.Written.Load())
	require.Zero(t, seen.Bytes.Load())
}

// While a device registers memory, and while it gives memory up, everybody else continues.
func TestRegistrationHoldsUpNobody(t *testing.T) {
	var blocks sync.Map // addresses whose registration waits
	begun, next := make(chan struct{}), make(chan struct{})
	all := &devices{begin: func(_ bool, mem []byte) error {
		if _, ok := blocks.Load(&mem[0]); ok {
			begun <- struct{}{}
			<-next
		}
		return nil
	}}
	c := New(t, Options{Van: Registered(all.of)})
	w, s := c.Workers[0], c.Servers[0]
	exchange := func() {
		t.Helper()
		h, p := push(t, w, 1, 2)
		respond(t, s, take(t, s, stepvan.LockStep)[0].ID, Floats(t, 3))
		require.NoError(t, h.Wait(Context(t)))
		require.Equal(t, []float32{3}, Values(t, p))
	}
	slow := func(x tensor.Tensor, what string, do func() error) {
		t.Helper()
		blocks.Store(&x.Bytes()[0], true)
		done := make(chan error)
		go func() { done <- do() }()
		<-begun
		exchange()
		next <- struct{}{}
		require.NoError(t, <-done, what)
		blocks.Delete(&x.Bytes()[0])
	}
	ours, theirs, buffer := Floats(t, make([]float32, many)...), Floats(t, make([]float32, many)...), Floats(t, make([]float32, many)...)
	var held interface{ Close() error }
	slow(ours, "worker", func() (err error) { held, err = w.Register(ours); return err })
	slow(ours, "worker, close", func() error { return held.Close() })
	slow(theirs, "server", func() (err error) { held, err = s.Register(theirs); return err })
	slow(theirs, "server, close", func() error { return held.Close() })
	slow(buffer, "receive buffer", func() error {
		b, err := s.RegisterRecvBuffer(buffer, []stepvan.Rank{0}, Keys(9))
		held = unregister{b}
		return err
	})
	slow(buffer, "receive buffer, end", func() error { return held.Close() })
}

type unregister struct {
	b interface{ Unregister() error }
}

func (u unregister) Close() error { return u.b.Unregister() }

// A program ends the registration of memory while a message goes out of it, piece by piece. The session lives, and
// every byte arrives.
func TestRegistrationsThatEndWhileMessagesGo(t *testing.T) {
	const floats = 200_000
	all := new(devices)
	v, seen := Watch(Registered(all.of))
	c := New(t, Options{Van: v, Link: func(o *link.Options) { o.PieceBytes = 4096 }})
	w, s := c.Workers[0], c.Servers[0]
	buffer, source := Floats(t, make([]float32, floats)...), Floats(t, make([]float32, floats)...)
	pull, answer := Floats(t, make([]float32, floats)...), Floats(t, make([]float32, floats)...)
	registered, err := s.RegisterRecvBuffer(buffer, []stepvan.Rank{0}, Keys(1))
	require.NoError(t, err)
	for i := range 5 {
		fill(t, source, float32(2*i+1))
		fill(t, answer, float32(2*i+2))
		ours, err := w.Register(source)
		require.NoError(t, err)
		room, err := w.Register(pull)
		require.NoError(t, err)
		h, err := w.PushPull(List(source), Keys(1), List(pull), Keys(2))
		require.NoError(t, err)
		require.NoError(t, ours.Close())
		if i%2 == 0 {
			require.NoError(t, room.Close())
		}
		r := take(t, s, stepvan.LockStep)[0]
		requireFilled(t, float32(2*i+1), r.Pushes()[0], "push")
		theirs, err := s.Register(answer)
		require.NoError(t, err)
		back, err := s.Respond(List(answer), r.ID)
		require.NoError(t, err)
		require.NoError(t, theirs.Close())
		require.NoError(t, room.Close())
		require.NoError(t, h.Wait(Context(t)))
		require.NoError(t, back.Wait(Context(t)))
		requireFilled(t, float32(2*i+2), pull, "answer")
	}
	require.Greater(t, seen.Written.Load(), int64(5*2*floats*4/(4*4096)*9/10), "pieces that the device has written")
	require.NoError(t, registered.Unregister())
	for ctx := Context(t); all.count(s.Instance) > 0 || all.count(w.Instance) > 0; runtime.Gosched() {
		require.NoError(t, ctx.Err(), "memory stays registered for ever")
	}
}

// What the system lacks is an error of the call that registers, after which nothing has changed.
func TestADeviceThatHasNoRoom(t *testing.T) {
	full := fmt.Errorf("no locked memory is left")
	all := &devices{begin: func(register bool, _ []byte) error {
		if register {
			return full
		}
		return nil
	}}
	v, seen := Watch(Registered(all.of))
	c := New(t, Options{Van: v})
	w, s := c.Workers[0], c.Servers[0]
	x := Floats(t, make([]float32, many)...)
	named := fmt.Sprintf("register: %d bytes at %p: the device refuses them", x.Len(), x.Bytes())
	_, err := w.Register(x)
	require.ErrorIs(t, err, full)
	require.ErrorContains(t, err, named)
	_, err = s.Register(x)
	require.ErrorIs(t, err, full)
	require.ErrorContains(t, err, named)
	_, err = s.RegisterRecvBuffer(x, []stepvan.Rank{0}, Keys(1))
	require.ErrorIs(t, err, full)
	require.Zero(t, s.Stats().Chunks)
	pull := shared(t, w.Instance, 0, many)
	h, err := w.Do(&worker.Exchange{Pull: List(pull), PullKeys: Keys(2)})
	require.NoError(t, err)
	fill(t, x, 4)
	respond(t, s, take(t, s, stepvan.LockStep)[0].ID, x)
	require.NoError(t, h.Wait(Context(t)))
	requireFilled(t, 4, pull, "answer")
	require.Zero(t, seen.Written.Load())
}

// The end of a server ends its registrations, and what comes later is refused.
func TestTheEndOfTheServerEndsItsRegistrations(t *testing.T) {
	all := new(devices)
	c := New(t, Options{Van: Registered(all.of)})
	s := c.Servers[0]
	x, y := Floats(t, make([]float32, many)...), shared(t, s.Instance, 0, many)
	_, err := s.Register(x)
	require.NoError(t, err)
	held, err := s.Register(y)
	require.NoError(t, err)
	require.Equal(t, 2, all.count(s.Instance))
	require.NoError(t, s.Close())
	require.Equal(t, 1, all.count(s.Instance), "the arena")
	require.NoError(t, y.Region().Close(), "nothing holds the tensor")
	require.NoError(t, held.Close())
	_, err = s.Register(x)
	require.ErrorIs(t, err, stepvan.ErrClosed)
}

// Threads that register the same memory, and end that, are right each for itself.
func TestTheSameMemoryOfSeveralThreads(t *testing.T) {
	all := new(devices)
	c := New(t, Options{Van: Registered(all.of)})
	w, s := c.Workers[0], c.Servers[0]
	x := Floats(t, make([]float32, many)...)
	var threads sync.WaitGroup
	for range 4 {
		threads.Go(func() {
			for range 200 {
				ours, err := w.Register(x)
				theirs, err2 := s.Register(x)
				if err != nil || err2 != nil || !w.Transport.Registry.Covers(x.Bytes()) || !s.Transport.Registry.Covers(x.Bytes()) {
					t.Error("registered memory is not found", err, err2)
					return
				}
				if err := errors.Join(ours.Close(), theirs.Close()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	threads.Wait()
	require.Zero(t, all.count(w.Instance)+all.count(s.Instance))
}

// Memory that the device cannot reach, such as that of some files, goes another way. The registration holds it.
func TestMemoryThatNoDeviceReaches(t *testing.T) {
	all := &devices{begin: func(bool, []byte) error { return fmt.Errorf("memory of a file: %w", stepvan.ErrNotSupported) }}
	v, seen := Watch(Registered(all.of))
	c := New(t, Options{Van: v})
	w, s := c.Workers[0], c.Servers[0]
	x, pull := Floats(t, make([]float32, many)...), Floats(t, make([]float32, many)...)
	fill(t, x, 3)
	ours, err := w.Register(x)
	require.NoError(t, err)
	require.False(t, ours.Registered())
	theirs, err := s.Register(x)
	require.NoError(t, err)
	require.False(t, theirs.Registered())
	b, err := s.RegisterRecvBuffer(Floats(t, make([]float32, many)...), []stepvan.Rank{0}, Keys(1))
	require.NoError(t, err)
	h, err := w.PushPull(List(x), Keys(1), List(pull), Keys(2))
	require.NoError(t, err)
	r := take(t, s, stepvan.LockStep)[0]
	requireFilled(t, 3, r.Pushes()[0], "push")
	respond(t, s, r.ID, x)
	require.NoError(t, h.Wait(Context(t)))
	requireFilled(t, 3, pull, "answer")
	require.Zero(t, seen.Written.Load())
	require.EqualValues(t, 2, w.Stats().Streamed.Tensors)
	require.NoError(t, errors.Join(ours.Close(), theirs.Close(), b.Unregister()))
	require.Zero(t, all.count(w.Instance)+all.count(s.Instance))
}
