package registry

import (
	"bytes"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/tensor"
)

// device counts what is registered.
type device struct {
	begun chan struct{} // a call has begun; nil: nobody looks
	next  chan struct{} // lets it return

	mu sync.Mutex
	// +checklocks:mu
	count map[extent]int
	// +checklocks:mu
	ever int
	// +checklocks:mu
	fail error
}

func (d *device) Register(mem []byte) error {
	if d.begun != nil {
		d.begun <- struct{}{}
		<-d.next
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ever++
	if d.fail != nil {
		return d.fail
	}
	if d.count == nil {
		d.count = map[extent]int{}
	}
	d.count[extentOf(mem)]++
	return nil
}

func (d *device) Deregister(mem []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.count[extentOf(mem)]--
	if d.count[extentOf(mem)] == 0 {
		delete(d.count, extentOf(mem))
	}
	return nil
}

func (d *device) calls() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ever
}

func (d *device) refuse(err error) *device {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail = err
	return d
}

func (d *device) left() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.count)
}

func heap(t *testing.T, n int) tensor.Tensor {
	t.Helper()
	x, err := tensor.FromSlice(make([]byte, n))
	require.NoError(t, err)
	return x
}

func part(t *testing.T, x tensor.Tensor, from, to int64) tensor.Tensor {
	t.Helper()
	p, err := x.Slice(from, to)
	require.NoError(t, err)
	return p
}

func TestRegisteredMemoryIsFoundByItsParts(t *testing.T) {
	d := new(device)
	r := New([]Device{d}, zerolog.Nop())
	x := heap(t, 100)
	b := x.Bytes()
	require.False(t, r.Covers(b))
	whole, err := r.Register(x)
	require.NoError(t, err)
	first, err := r.Register(part(t, x, 0, 50))
	require.NoError(t, err)
	last, err := r.Register(part(t, x, 40, 100))
	require.NoError(t, err)
	require.Equal(t, 3, d.left())
	require.Equal(t, Registered{Regions: 3, Bytes: 100 + 50 + 60}, r.Registered())

	at, ok := r.Find(b[30:60])
	require.True(t, ok)
	require.EqualValues(t, 30, at.Offset)
	require.Len(t, at.Memory, 100)
	require.NoError(t, whole.Close())
	for _, c := range []struct {
		from, to int
		found    bool
	}{{0, 100, false}, {0, 50, true}, {0, 51, false}, {39, 60, false}, {40, 100, true}, {45, 46, true}, {99, 100, true}} {
		require.Equal(t, c.found, r.Covers(b[c.from:c.to]), "%v", c)
	}
	require.True(t, r.Covers(b[:0]))
	require.NoError(t, first.Close())
	require.NoError(t, last.Close())
	require.False(t, r.Covers(b[:1]))
	require.Zero(t, d.left())
}

func TestTheSameMemoryIsRegisteredOnce(t *testing.T) {
	d := &device{begun: make(chan struct{}), next: make(chan struct{})}
	r := New([]Device{d}, zerolog.Nop())
	x := heap(t, 100)
	var both sync.WaitGroup
	var list [2]*Registration
	for i := range list {
		both.Go(func() { list[i], _ = r.Register(x) })
	}
	<-d.begun
	require.False(t, r.Covers(x.Bytes()), "the device has not answered")
	close(d.next)
	both.Wait()
	require.Equal(t, 1, d.calls())
	require.Equal(t, list[0].ID(), list[1].ID())
	require.NoError(t, list[0].Close())
	require.True(t, r.Covers(x.Bytes()))
	require.NoError(t, list[1].Close())
	require.Zero(t, d.left())
}

func TestRefusals(t *testing.T) {
	first, second := new(device), new(device).refuse(errors.New("no memlock"))
	r := New([]Device{first, second}, zerolog.Nop())
	x := heap(t, 100)
	_, err := r.Register(x)
	require.ErrorContains(t, err, "no memlock")
	require.Zero(t, first.left(), "registered with all devices, or with none")
	second.refuse(stepvan.ErrNotSupported)
	held, err := r.Register(x)
	require.NoError(t, err, "the memory goes another way")
	require.False(t, r.Covers(x.Bytes()))
	require.Zero(t, held.ID())
	require.NoError(t, held.Close())
	second.refuse(nil)
	held, err = r.Register(x)
	require.NoError(t, err)
	require.True(t, r.Covers(x.Bytes()))
	require.NoError(t, r.Close())
	require.Zero(t, first.left()+second.left())
	_, err = r.Register(x)
	require.ErrorIs(t, err, stepvan.ErrClosed)
	require.NoError(t, held.Close())
}

func TestWithoutDevicesAllMemoryIsRegistered(t *testing.T) {
	require.Zero(t, New(nil, zerolog.Nop()).Registered())
	r := New(nil, zerolog.Nop())
	x := heap(t, 100)
	require.True(t, r.Covers(x.Bytes()))
	held, err := r.Register(x)
	require.NoError(t, err)
	require.NoError(t, held.Close())
	require.NoError(t, r.Close())
}

func TestARegistrationHoldsItsRegion(t *testing.T) {
	r := New([]Device{new(device)}, zerolog.Nop())
	memory, err := tensor.NewAllocator(tensor.Options{})
	require.NoError(t, err)
	x, err := memory.Zeros(tensor.Uint8, 100)
	require.NoError(t, err)
	held, err := r.Register(x) // no arena of a watched allocator
	require.NoError(t, err)
	require.ErrorIs(t, x.Region().Close(), stepvan.ErrBusy)
	require.NoError(t, held.Close())
	require.NoError(t, x.Region().Close())
	_, err = r.Register(x)
	require.ErrorIs(t, err, stepvan.ErrClosed)
	require.NoError(t, memory.Close())
}

// A message that goes in pieces keeps its memory registered, and the tensor, although the program has ended the
// registration. Nobody finds the memory any more.
func TestMessagesHoldTheirMemory(t *testing.T) {
	d := new(device)
	r := New([]Device{d}, zerolog.Nop())
	memory, err := tensor.NewAllocator(tensor.Options{})
	require.NoError(t, err)
	x, err := memory.Zeros(tensor.Uint8, 100)
	require.NoError(t, err)
	_, ok := r.Hold(x.Bytes())
	require.False(t, ok)
	held, err := r.Register(x)
	require.NoError(t, err)
	one, ok := r.Hold(x.Bytes()[:10])
	require.True(t, ok)
	two, ok := r.Hold(x.Bytes()[10:])
	require.True(t, ok)
	r.Release(one)
	require.True(t, r.Covers(x.Bytes()))
	require.NoError(t, held.Close())
	require.False(t, r.Covers(x.Bytes()))
	require.Equal(t, 1, d.left())
	require.ErrorIs(t, x.Region().Close(), stepvan.ErrBusy)
	again, err := r.Register(x)
	require.NoError(t, err)
	r.Release(two)
	r.leaving.Wait()
	require.Equal(t, 1, d.left(), "the other registration")
	require.True(t, r.Covers(x.Bytes()))
	three, ok := r.Hold(x.Bytes())
	require.True(t, ok)
	r.Release(three)
	require.NoError(t, again.Close())
	require.Zero(t, d.left())
	require.NoError(t, x.Region().Close())
	require.NoError(t, memory.Close())
}

// An arena is registered once, when a tensor in it is named first. It stays mapped until the device has given it up.
func TestArenas(t *testing.T) {
	d := new(device)
	r := New([]Device{d}, zerolog.Nop())
	memory, err := tensor.NewAllocator(tensor.Options{})
	require.NoError(t, err)
	r.Watch(memory)
	x, err := memory.Zeros(tensor.Uint8, 100)
	require.NoError(t, err)
	y, err := memory.Zeros(tensor.Uint8, 100)
	require.NoError(t, err)
	require.False(t, r.Covers(x.Bytes()))
	r.Prepare(&x)
	require.True(t, r.Covers(x.Bytes()))
	require.True(t, r.Covers(y.Bytes()))
	r.Prepare(&y)
	held, err := r.Register(y)
	require.NoError(t, err)
	require.Zero(t, held.ID())
	require.Equal(t, 1, d.calls())
	file, _ := memory.Find(x.Bytes())
	at, _ := r.Find(x.Bytes())
	require.Equal(t, []any{file.File, file.Offset}, []any{at.File, at.Offset})

	mem, wide := at.Memory, extentOf(at.Memory)
	require.NoError(t, held.Close())
	require.NoError(t, x.Region().Close())
	require.NoError(t, y.Region().Close())
	require.NoError(t, memory.Trim())
	require.False(t, r.Covers(mem))
	require.NoError(t, r.Close())
	require.Zero(t, d.left(), "%v", wide)
	require.NoError(t, memory.Close())
}

// Memory may be freed while it is registered, and an arena mapped in its place: then its address means the arena.
func TestAnArenaInThePlaceOfFreedMemory(t *testing.T) {
	d := new(device)
	r := New([]Device{d}, zerolog.Nop())
	memory, err := tensor.NewAllocator(tensor.Options{})
	require.NoError(t, err)
	x, err := memory.Zeros(tensor.Uint8, 100)
	require.NoError(t, err)
	arena, _ := memory.Find(x.Bytes())
	old, err := tensor.FromSlice(arena.Memory[:4096]) // the registry knows no arena yet
	require.NoError(t, err)
	held, err := r.Register(old)
	require.NoError(t, err)
	require.True(t, r.Covers(x.Bytes()), "by what was there before")
	r.Watch(memory)
	r.Prepare(&x)
	at, ok := r.Find(x.Bytes())
	require.True(t, ok)
	require.Equal(t, arena.File, at.File)
	require.Equal(t, 2, d.left())
	require.NoError(t, held.Close())
	require.Equal(t, 1, d.left(), "the arena")
	require.NoError(t, x.Region().Close())
	require.NoError(t, r.Close())
	require.NoError(t, memory.Close())
	require.Zero(t, d.left())
}

func TestAnArenaThatTheDeviceRefusesIsAskedForOnce(t *testing.T) {
	d := new(device).refuse(stepvan.ErrNotSupported)
	r := New([]Device{d}, zerolog.Nop())
	memory, err := tensor.NewAllocator(tensor.Options{})
	require.NoError(t, err)
	r.Watch(memory)
	x, err := memory.Zeros(tensor.Uint8, 100)
	require.NoError(t, err)
	for range 3 {
		r.Prepare(&x)
		require.False(t, r.Covers(x.Bytes()))
	}
	require.Equal(t, 1, d.calls())
	require.NoError(t, x.Region().Close())
	require.NoError(t, memory.Close())
	require.NoError(t, r.Close())
}

func TestLookingUpAllocatesNothing(t *testing.T) {
	r := New([]Device{new(device)}, zerolog.Nop())
	x := heap(t, 100)
	held, err := r.Register(x)
	require.NoError(t, err)
	b, found := x.Bytes(), true
	require.Zero(t, testing.AllocsPerRun(100, func() { found = found && r.Covers(b[10:20]) }))
	require.True(t, found)
	require.NoError(t, held.Close())
}

// Several goroutines register, look up and drop memory.
func TestRegistryUnderFire(t *testing.T) {
	d := new(device)
	r := New([]Device{d}, zerolog.Nop())
	memory, err := tensor.NewAllocator(tensor.Options{ArenaBytes: 1 << 16})
	require.NoError(t, err)
	r.Watch(memory)
	shared := heap(t, 1000)
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for range 100 {
				own, err := memory.Empty(tensor.Uint8, 1<<20)
				if err != nil {
					t.Error(err)
					return
				}
				r.Prepare(&own)
				if !r.Covers(own.Bytes()) {
					t.Error("an arena in use is not registered")
				}
				held, err := r.Register(part(t, shared, int64(i), int64(500+i)))
				if err != nil || !r.Covers(shared.Bytes()[i:500+i]) {
					t.Error("registered memory is not found", err)
				}
				if err := errors.Join(held.Close(), own.Region().Close()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	require.NoError(t, memory.Close())
	require.NoError(t, r.Close())
	require.Zero(t, d.left())
}

// What is streamed is counted, and the log says it once.
func TestStreamed(t *testing.T) {
	var log bytes.Buffer
	r := New([]Device{new(device)}, zerolog.New(&log))
	for range patience - 1 {
		r.NoteStreamed("push", 7, 100)
		r.NoteStreamed("answer", 8, 1000)
	}
	require.Empty(t, log.String(), "a node that registers memory by itself needs some of them")
	require.Equal(t, Streamed{Tensors: 2 * (patience - 1), Bytes: 1100 * (patience - 1)}, r.Streamed())
	for range 3 {
		r.NoteStreamed("push", 7, 100)
		r.NoteStreamed("answer", 8, 1000)
	}
	require.Equal(t, 1, strings.Count(log.String(), "\n"))
	require.Contains(t, log.String(), "the push of key 7 is copied")
	for key := range tensor.Key(2 * mostKeys) {
		r.NoteStreamed("push", key, 1)
	}
	require.Len(t, r.streams.times, mostKeys)
	require.NoError(t, r.Close())
}
