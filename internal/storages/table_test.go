package storages

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/tensor"
)

// device registers memory, and counts it.
type device struct {
	begun chan struct{} // a call has begun; nil: nobody looks
	next  chan struct{} // lets it return
	end   chan struct{} // of registrations

	mu sync.Mutex
	// +checklocks:mu
	reached map[*byte]int // bytes
	// +checklocks:mu
	ever int
	// +checklocks:mu
	fail error
	// +checklocks:mu
	unreachable bool
}

type registration struct {
	d   *device
	at  *byte
	end chan struct{} // lets Close return; nil: at once
}

func (d *device) register(t tensor.Tensor) (Registration, error) {
	if d.begun != nil {
		d.begun <- struct{}{}
		<-d.next
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ever++
	if d.fail != nil {
		return nil, d.fail
	}
	if d.reached == nil {
		d.reached = map[*byte]int{}
	}
	r := registration{d, &t.Bytes()[0], d.end}
	if !d.unreachable {
		d.reached[r.at] = t.Len()
	}
	return r, nil
}

func (r registration) Registered() bool { return r.d.has(r.at) }

func (r registration) Close() error {
	if r.end != nil {
		<-r.end
	}
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	delete(r.d.reached, r.at)
	return nil
}

func (d *device) has(at *byte) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.reached[at] > 0
}

func (d *device) calls() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ever
}

// memory is a storage of a program.
type memory struct {
	id     ID
	window *tensor.Window
	region *tensor.Region
}

var lastID ID

func show(mem []byte) *memory {
	lastID++
	m := &memory{id: lastID, window: tensor.NewWindow(func() {})}
	m.region = m.window.Show(mem)
	return m
}

func (m *memory) at() *byte { return &m.region.Bytes()[0] }

// free ends a storage, as the bindings do.
func (m *memory) free(t *Table) {
	t.End(m.id)
	m.window.Shut()
}

func (t *Table) see(m *memory, times int) {
	for range times {
		t.See(m.id, m.region)
	}
	t.Settle()
}

func made(t *testing.T, limit int64) (*Table, *device) {
	d := new(device)
	all := New(Options{Register: d.register, Limit: limit, Log: zerolog.Nop()})
	t.Cleanup(func() {
		all.Close()
		require.Empty(t, d.reached)
	})
	return all, d
}

func requirePinned(t *testing.T, all *Table, count int, bytes int64) {
	t.Helper()
	n, b := all.Pinned()
	require.Equal(t, []int64{int64(count), bytes}, []int64{int64(n), b})
}

func TestAStorageIsRegisteredTheSecondTime(t *testing.T) {
	all, d := made(t, 1000)
	m, other := show(make([]byte, 100)), show(make([]byte, 50))
	all.see(m, 1)
	all.see(other, 1)
	require.Zero(t, d.calls())
	all.see(m, 1)
	require.True(t, d.has(m.at()))
	require.False(t, d.has(other.at()))
	requirePinned(t, all, 1, 100)
	all.see(m, 5)
	require.Equal(t, 1, d.calls())
	at := m.at()
	m.free(all)
	require.False(t, d.has(at))
	requirePinned(t, all, 0, 0)
	all.End(m.id)
}

// Memory that is freed, and other memory at its address, are two storages: the other one begins from nothing.
func TestAnotherStorageAtTheSameAddress(t *testing.T) {
	all, d := made(t, 1000)
	mem := make([]byte, 100)
	m := show(mem)
	all.see(m, 2)
	m.free(all)
	require.False(t, d.has(&mem[0]))
	again := show(mem[:60])
	all.see(again, 1)
	require.False(t, d.has(&mem[0]))
	all.see(again, 1)
	require.True(t, d.has(&mem[0]))
	requirePinned(t, all, 1, 60)
	require.Equal(t, 2, d.calls())
}

func TestWhatWasNamedLongestAgoMakesRoom(t *testing.T) {
	all, d := made(t, 250)
	a, b, c := show(make([]byte, 100)), show(make([]byte, 100)), show(make([]byte, 100))
	all.see(a, 2)
	all.see(b, 2)
	all.see(a, 1)
	all.see(c, 2)
	require.True(t, d.has(a.at()))
	require.False(t, d.has(b.at()), "named longest ago")
	require.True(t, d.has(c.at()))
	requirePinned(t, all, 2, 200)
	all.see(b, 1)
	require.False(t, d.has(b.at()), "it begins from nothing")
	all.see(b, 1)
	require.True(t, d.has(b.at()))
	require.False(t, d.has(a.at()))
	require.True(t, d.has(c.at()))
}

// A storage that an operation uses never makes room. When all are in use, the next one is not registered.
func TestWhatIsInFlightStays(t *testing.T) {
	all, d := made(t, 250)
	a, b, c := show(make([]byte, 100)), show(make([]byte, 100)), show(make([]byte, 200))
	all.see(a, 2)
	all.see(b, 2)
	require.NoError(t, a.region.Retain())
	all.see(c, 2)
	require.False(t, d.has(c.at()), "a and b would both have to go")
	requirePinned(t, all, 2, 200)
	e := show(make([]byte, 100))
	all.see(e, 2)
	require.True(t, d.has(a.at()), "in flight")
	require.False(t, d.has(b.at()))
	require.True(t, d.has(e.at()))
	a.region.Release()
	all.see(c, 2)
	require.True(t, d.has(c.at()))
	requirePinned(t, all, 1, 200)
}

func TestStoragesThatAreNeverRegistered(t *testing.T) {
	all, d := made(t, 100)
	large, empty, unreachable, failed := show(make([]byte, 101)), show(nil), show(make([]byte, 10)), show(make([]byte, 10))
	all.see(large, 3)
	all.see(empty, 3)
	require.Zero(t, d.calls())
	d.unreachable = true
	all.see(unreachable, 5)
	require.Equal(t, 1, d.calls(), "it is not asked again")
	d.unreachable, d.fail = false, errors.New("no memory may be locked")
	all.see(failed, 5)
	require.Equal(t, 2, d.calls())
	requirePinned(t, all, 0, 0)
	for _, m := range []*memory{large, empty, unreachable, failed} {
		m.free(all)
	}
}

// Memory goes while the device registers it, and while it waits for another: the end waits for the device, and nothing
// is registered behind it.
func TestMemoryGoesWhileItIsRegistered(t *testing.T) {
	all, d := made(t, 1000)
	d.begun, d.next = make(chan struct{}), make(chan struct{})
	first, second := show(make([]byte, 100)), show(make([]byte, 100))
	for range 2 {
		all.See(first.id, first.region)
		all.See(second.id, second.region)
	}
	<-d.begun
	second.free(all)
	gone := make(chan struct{})
	at := first.at()
	go func() {
		first.free(all)
		close(gone)
	}()
	select {
	case <-gone:
		t.Fatal("the device still registers the memory")
	default:
	}
	d.next <- struct{}{}
	<-gone
	all.Settle()
	require.False(t, d.has(at))
	require.Equal(t, 1, d.calls())
	requirePinned(t, all, 0, 0)
}

// The table closes while the program ends a storage: both wait for the device.
func TestEveryEndWaitsForTheDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, d := made(t, 100)
		d.end = make(chan struct{})
		m := show(make([]byte, 10))
		all.see(m, 2)
		require.True(t, d.has(m.at()))
		for range 2 {
			go func() {
				all.End(m.id)
				if d.has(m.at()) {
					t.Error("End has returned, and the memory is registered")
				}
			}()
		}
		synctest.Wait()
		close(d.end)
		synctest.Wait()
		require.False(t, d.has(m.at()))
	})
}

func TestAClosedTableRegistersNothing(t *testing.T) {
	all, d := made(t, 1000)
	m, other := show(make([]byte, 100)), show(make([]byte, 100))
	all.see(m, 2)
	all.see(other, 1)
	all.Close()
	require.Empty(t, d.reached)
	all.see(m, 3)
	all.see(other, 3)
	require.Equal(t, 1, d.calls())
	m.free(all)
}

// A panic of a device ends the goroutine, and leaves nobody waiting.
func TestAPanicLeavesNobodyWaiting(t *testing.T) {
	panicked := make(chan any, 1)
	all := New(Options{
		Register: func(tensor.Tensor) (Registration, error) { panic("a mistake") }, Limit: 1000, Log: zerolog.Nop(),
		Contain: func(work func()) {
			defer func() { panicked <- recover() }()
			work()
		},
	})
	m := show(make([]byte, 100))
	all.see(m, 2)
	require.Equal(t, "a mistake", <-panicked)
	m.free(all)
	all.Close()
}

func TestSeeingAllocatesNothing(t *testing.T) {
	all, _ := made(t, 1000)
	m, other := show(make([]byte, 100)), show(make([]byte, 100))
	all.see(m, 2)
	all.see(other, 2)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		all.See(m.id, m.region)
		all.See(other.id, other.region)
	}))
}

// Several threads name storages and free them.
func TestTableUnderFire(t *testing.T) {
	all, d := made(t, 2000)
	var threads sync.WaitGroup
	ids := make(chan ID, 4)
	for i := range 4 {
		ids <- ID(1<<32 + i<<16)
	}
	for range 4 {
		threads.Go(func() {
			base := <-ids
			for i := range 200 {
				mem := make([]byte, 100+i)
				w := tensor.NewWindow(func() {})
				r := w.Show(mem)
				for range i % 4 {
					all.See(base+ID(i), r)
				}
				all.End(base + ID(i))
				if d.has(&mem[0]) {
					t.Error("memory that has gone is registered")
				}
				w.Shut()
			}
		})
	}
	threads.Wait()
	all.Settle()
	requirePinned(t, all, 0, 0)
}
