package devicetest

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/device"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/tensor"
)

// Kind is the kind of device that is simulated.
const Kind = tensor.DeviceExtension

// Options of an accelerator. The zero value copies at once, as its clock allows.
type Options struct {
	Devices int           // of the kind; 0 means 1
	Manual  bool          // the clock moves with Advance alone
	PerCopy time.Duration // what a copy takes
}

// Accelerator is the driver of simulated devices, and implements [device.Driver].
type Accelerator struct {
	o Options

	mu      sync.Mutex
	clock   time.Duration // with Options.Manual
	memory  []block
	streams map[uintptr]*stream
	last    uintptr // the handle of the stream that was made last
	faults  Faults
	counts  Counts
	pinned  map[*byte]int
}

// Faults are what the test has chosen to fail. An error is returned until the test takes it back.
type Faults struct {
	Queue  error // copies cannot be queued
	Copy   error // copies that are queued fail when their time comes, and copy nothing
	Pin    error
	Export error
	Flush  error
	Gone   error // the device is gone: everything fails
	Hang   bool  // no work ends
}

// Counts is what was asked for.
type Counts struct {
	ToHost, FromHost int // copies that were queued
	Events           int // that are open
	Pinned           int // pieces of memory
	Streams          int // that NewStream has made and CloseStream has not ended
	Exported         int // dma-bufs
	Flushed          int
}

// block is memory of a device.
type block struct {
	device tensor.Device
	void   []byte   // reserved addresses, which fault
	file   *os.File // what they hold
	bytes  []byte   // of file
	freed  bool
}

// stream has the work that is not over.
type stream struct {
	device tensor.Device
	queue  []work
	until  time.Duration // when the last of it is over
	failed error         // the first failure, which stays
	done   int           // pieces of work that are over
	queued int
}

type work struct {
	due   time.Duration
	after *event // that must be over before
	do    func() error
}

// event implements [device.Event].
type event struct {
	a      *Accelerator
	s      *stream
	behind int // it is over when so much of the stream's work is
	closed atomic.Bool
}

// New makes an accelerator and registers it as the driver of its kind until the test ends.
func New(t testing.TB, o Options) *Accelerator {
	t.Helper()
	o.Devices = max(o.Devices, 1)
	a := &Accelerator{o: o, streams: map[uintptr]*stream{}, pinned: map[*byte]int{}}
	unregister, err := device.Register(Kind, a)
	require.NoError(t, err)
	t.Cleanup(func() {
		unregister()
		a.mu.Lock()
		defer a.mu.Unlock()
		for i := range a.memory {
			require.NoError(t, syscall.Munmap(a.memory[i].void))
			require.NoError(t, a.memory[i].file.Close())
		}
	})
	return a
}

// Device returns the i-th device of the kind.
func (a *Accelerator) Device(i int) tensor.Device { return tensor.Device{Kind: Kind, ID: int32(i)} }

// Alloc makes n bytes of memory of the i-th device, which hold zeros.
func (a *Accelerator) Alloc(t testing.TB, i, n int) uintptr {
	t.Helper()
	void, err := syscall.Mmap(-1, 0, max(n, 1), syscall.PROT_NONE, syscall.MAP_PRIVATE|syscall.MAP_ANON|syscall.MAP_NORESERVE)
	require.NoError(t, err)
	file, err := os.CreateTemp("", "accelerator")
	require.NoError(t, err)
	require.NoError(t, os.Remove(file.Name()))
	require.NoError(t, file.Truncate(int64(max(n, 1))))
	bytes, err := syscall.Mmap(int(file.Fd()), 0, max(n, 1), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	require.NoError(t, err)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.memory = append(a.memory, block{device: a.Device(i), void: void, file: file, bytes: bytes[:n]})
	return addressOf(void)
}

// Free ends memory that Alloc has made. Copies to and from it fail from then on.
func (a *Accelerator) Free(address uintptr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if b, _ := a.find(address, 1); b != nil {
		b.freed = true
	}
}

// Tensor makes a tensor of the i-th device that holds these bytes.
func (a *Accelerator) Tensor(t testing.TB, i int, d tensor.DType, b []byte, dims ...int64) tensor.Tensor {
	t.Helper()
	at := a.Alloc(t, i, len(b))
	copy(a.Bytes(at, len(b)), b)
	x, err := tensor.FromDevice(a.Device(i), at, d, tensor.ShapeOf(dims...), nil)
	require.NoError(t, err)
	return x
}

// Bytes returns what n bytes at an address hold, or nil when there is no such memory.
func (a *Accelerator) Bytes(address uintptr, n int) []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, b := a.find(address, n)
	return b
}

// Content returns a copy of what a tensor holds.
func (a *Accelerator) Content(x tensor.Tensor) []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.Peek(x)
}

// Fill and Peek are for functions of [Accelerator.Work]: they write and read what a tensor holds, as a kernel does.
func (a *Accelerator) Fill(x tensor.Tensor, b byte) {
	_, mem := a.find(x.Address(), x.Len())
	for i := range mem {
		mem[i] = b
	}
}

// Peek returns a copy of what a tensor holds.
func (a *Accelerator) Peek(x tensor.Tensor) []byte {
	_, b := a.find(x.Address(), x.Len())
	return append([]byte(nil), b...)
}

// Advance moves the clock of a Manual accelerator.
func (a *Accelerator) Advance(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.clock += d
	a.settle()
}

// Fail replaces what fails.
func (a *Accelerator) Fail(f Faults) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.settle() // the work that is due ends as it would have
	a.faults = f
}

// Counts returns what was asked for so far.
func (a *Accelerator) Counts() Counts {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.counts
	c.Pinned = len(a.pinned)
	return c
}

// Work queues do to a stream, which takes so long for it. A kernel of the program is such work.
func (a *Accelerator) Work(s device.Stream, takes time.Duration, do func()) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.queue(s, takes, func() error { do(); return nil })
}

func addressOf(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// find returns the block that n bytes at an address lie in, and those bytes. Under mu.
func (a *Accelerator) find(address uintptr, n int) (*block, []byte) {
	for i := range a.memory {
		b := &a.memory[i]
		if start := addressOf(b.void); !b.freed && address >= start && address+uintptr(n) <= start+uintptr(len(b.bytes)) {
			return b, b.bytes[address-start : address-start+uintptr(n)]
		}
	}
	return nil, nil
}

// now is the time of the clock. Under mu.
func (a *Accelerator) now() time.Duration {
	if a.o.Manual {
		return a.clock
	}
	return time.Duration(time.Now().UnixNano())
}

// settle does the work that is due. Under mu.
func (a *Accelerator) settle() {
	for again := true; again; {
		again = false
		for _, s := range a.streams {
			for len(s.queue) > 0 && !a.faults.Hang && s.queue[0].due <= a.now() && (s.queue[0].after == nil || s.queue[0].after.over()) {
				w := s.queue[0]
				s.queue = s.queue[1:]
				if err := w.do(); err != nil && s.failed == nil {
					s.failed = err
				}
				s.done++
				again = true
			}
		}
	}
}

// stream finds a stream of the kind. Under mu.
func (a *Accelerator) stream(s device.Stream) (*stream, error) {
	if a.faults.Gone != nil {
		return nil, a.faults.Gone
	}
	if s.Device.Kind != Kind || s.Device.ID < 0 || int(s.Device.ID) >= a.o.Devices {
		return nil, errs.Invalid("stream %#x: there is no such device (got %s, want one of %d of %s)", s.Handle, s.Device, a.o.Devices, Kind)
	}
	key := s.Handle
	if key == 0 {
		key = ^uintptr(s.Device.ID) // the default stream of the device
		if a.streams[key] == nil {
			a.streams[key] = &stream{device: s.Device}
		}
	}
	found := a.streams[key]
	switch {
	case found == nil:
		return nil, errs.Invalid("stream %#x: %s has no such stream", s.Handle, s.Device)
	case found.device != s.Device:
		return nil, errs.Invalid("stream %#x: it belongs to another device (got %s, want %s)", s.Handle, found.device, s.Device)
	}
	return found, nil
}

// queue queues work. Under mu.
func (a *Accelerator) queue(on device.Stream, takes time.Duration, do func() error) error {
	s, err := a.stream(on)
	if err != nil {
		return err
	}
	s.until = max(s.until, a.now()) + takes
	s.queue = append(s.queue, work{due: s.until, do: do})
	s.queued++
	a.settle()
	return nil
}

// copyBetween queues a copy of n bytes between memory of the device of s and the host. Under mu.
func (a *Accelerator) copyBetween(s device.Stream, address uintptr, host []byte, move func(dev, host []byte)) error {
	if err := a.faults.Queue; err != nil {
		return err
	}
	if _, b := a.find(address, len(host)); b == nil {
		return errs.Invalid("%d bytes at %#x are not memory of %s", len(host), address, s.Device)
	}
	return a.queue(s, a.o.PerCopy, func() error {
		_, b := a.find(address, len(host))
		switch {
		case a.faults.Copy != nil:
			return a.faults.Copy
		case b == nil:
			return fmt.Errorf("%d bytes at %#x were freed", len(host), address)
		}
		move(b, host)
		return nil
	})
}

// over reports whether the work before the event is. Under mu of its accelerator.
func (e *event) over() bool { return e.s.done >= e.behind }

// Query implements [device.Event].
func (e *event) Query() (bool, error) {
	a := e.a
	a.mu.Lock()
	defer a.mu.Unlock()
	if e.closed.Load() {
		return true, fmt.Errorf("the event was closed: %w", stepvan.ErrClosed)
	}
	if a.faults.Gone != nil {
		return true, a.faults.Gone
	}
	a.settle()
	if !e.over() {
		return false, nil
	}
	return true, e.s.failed
}

// Close implements [device.Event].
func (e *event) Close() {
	if e.closed.Swap(true) {
		panic("devicetest: an event was closed twice")
	}
	e.a.mu.Lock()
	defer e.a.mu.Unlock()
	e.a.counts.Events--
}
