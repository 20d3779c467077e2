package memvan

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/van"
)

// Device stands for hardware that reaches only registered memory. Vans of one instance share it. The zero value is
// ready.
type Device struct {
	// Begin is called before each registration, and before the end of each. It may block, and its error refuses a
	// registration. May be nil.
	Begin func(register bool, mem []byte) error
	// DMABuf and Peer return what the device sees of n bytes of an accelerator: at offset of a dma-buf, and at an
	// address. They return nil if it does not reach them. May be nil.
	DMABuf func(fd int, offset int64, n int) []byte
	Peer   func(address uintptr, n int) []byte

	mu sync.Mutex
	// +checklocks:mu
	registered map[extent]int // how often
	// +checklocks:mu
	accelerators map[extent][]byte // memory of accelerators, as the device sees it
}

// extent is a range of addresses.
type extent struct{ start, end uintptr }

func extentOf(b []byte) extent {
	start := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	return extent{start, start + uintptr(len(b))}
}

var _ van.Registrar = (*memVan)(nil)

// Register implements van.Registrar.
func (n *memVan) Register(mem []byte) error {
	d := n.opt.Device
	if d == nil {
		return nil
	}
	if d.Begin != nil {
		if err := d.Begin(true, mem); err != nil {
			return err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.registered == nil {
		d.registered = map[extent]int{}
	}
	d.registered[extentOf(mem)]++
	return nil
}

// Deregister implements van.Registrar.
func (n *memVan) Deregister(mem []byte) error {
	d := n.opt.Device
	if d == nil {
		return nil
	}
	if d.Begin != nil {
		_ = d.Begin(false, mem)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	x := extentOf(mem)
	if d.registered[x] == 0 {
		return errs.Invalid("deregister: %d bytes: they are not registered", len(mem))
	}
	if d.registered[x]--; d.registered[x] == 0 {
		delete(d.registered, x)
	}
	return nil
}

// Registered returns how many bytes are registered, and how often any memory is.
func (d *Device) Registered() (bytes int64, count int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for x, n := range d.registered {
		bytes, count = bytes+int64(x.end-x.start), count+n
	}
	return bytes, count
}

// Reaches reports whether n bytes at data lie in registered memory.
func (d *Device) Reaches(data *byte, n int) bool { return d.check(unsafe.Slice(data, n)) == nil }

// check refuses memory that is not registered. A van without a device reaches all memory.
func (d *Device) check(mem []byte) error {
	if d == nil || len(mem) == 0 {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	at := extentOf(mem)
	for x := range d.registered {
		if x.start <= at.start && at.end <= x.end {
			return nil
		}
	}
	return fmt.Errorf("%d bytes are not registered: %w", len(mem), stepvan.ErrNotSupported)
}

// checkSources refuses a message with a segment for a target that is not registered.
func (d *Device) checkSources(m *van.Message) error {
	for i, t := range m.Target {
		if t.IsZero() {
			continue
		}
		if err := d.check(m.Payload[i]); err != nil {
			return err
		}
	}
	return nil
}
