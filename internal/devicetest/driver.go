package devicetest

import (
	"syscall"
	"unsafe"

	"github.com/stepvan/stepvan/device"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/tensor"
)

// Locate implements [device.Driver].
func (a *Accelerator) Locate(address uintptr) (tensor.Device, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if b, _ := a.find(address, 1); b != nil {
		return b.device, a.faults.Gone
	}
	return tensor.Device{}, nil
}

// NewStream implements [device.Driver].
func (a *Accelerator) NewStream(d tensor.Device) (device.Stream, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, err := a.stream(device.Stream{Device: d}); err != nil {
		return device.Stream{}, err
	}
	a.last++
	a.streams[a.last] = &stream{device: d}
	a.counts.Streams++
	return device.Stream{Device: d, Handle: a.last}, nil
}

// CloseStream implements [device.Driver].
func (a *Accelerator) CloseStream(s device.Stream) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.counts.Streams--
	return nil // its work continues
}

// ToHost implements [device.Driver].
func (a *Accelerator) ToHost(s device.Stream, dst []byte, src uintptr) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.counts.ToHost++
	return a.copyBetween(s, src, dst, func(dev, host []byte) { copy(host, dev) })
}

// FromHost implements [device.Driver].
func (a *Accelerator) FromHost(s device.Stream, dst uintptr, src []byte) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.counts.FromHost++
	return a.copyBetween(s, dst, src, func(dev, host []byte) { copy(dev, host) })
}

// Record implements [device.Driver].
func (a *Accelerator) Record(on device.Stream) (device.Event, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s, err := a.stream(on)
	if err != nil {
		return nil, err
	}
	a.counts.Events++
	return &event{a: a, s: s, behind: s.queued}, nil
}

// Follow implements [device.Driver].
func (a *Accelerator) Follow(on device.Stream, e device.Event) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	s, err := a.stream(on)
	if err != nil {
		return err
	}
	other, ok := e.(*event)
	if !ok || other.a != a {
		return errs.Invalid("stream %#x: the event is of another kind of device", on.Handle)
	}
	s.queue = append(s.queue, work{after: &event{s: other.s, behind: other.behind}, do: func() error { return nil }})
	s.queued++
	return nil
}

// Pin implements [device.Driver].
func (a *Accelerator) Pin(mem []byte) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.faults.Pin != nil {
		return a.faults.Pin
	}
	a.pinned[unsafe.SliceData(mem)]++
	return nil
}

// Unpin implements [device.Driver].
func (a *Accelerator) Unpin(mem []byte) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := unsafe.SliceData(mem)
	if a.pinned[at] == 0 {
		return errs.Invalid("unpin: %d bytes at %p are not pinned", len(mem), at)
	}
	if a.pinned[at]--; a.pinned[at] == 0 {
		delete(a.pinned, at)
	}
	return nil
}

// Flush implements [device.Driver].
func (a *Accelerator) Flush(tensor.Device) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.faults.Gone != nil {
		return a.faults.Gone
	}
	a.counts.Flushed++
	return a.faults.Flush
}

// Export implements [device.Driver]. The file has the bytes of the memory.
func (a *Accelerator) Export(d tensor.Device, address uintptr, n int64) (device.DMABuf, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.faults.Export; err != nil {
		return device.DMABuf{}, err
	}
	b, _ := a.find(address, int(n))
	if b == nil || b.device != d {
		return device.DMABuf{}, errs.Invalid("export: %d bytes at %#x are not memory of %s", n, address, d)
	}
	a.counts.Exported++
	fd, err := syscall.Dup(int(b.file.Fd()))
	return device.DMABuf{FD: fd, Offset: int64(address - addressOf(b.void))}, err
}

// Mapped returns n bytes of a file that Export has made, as another device maps it.
func (a *Accelerator) Mapped(fd int, offset int64, n int) []byte {
	var want, have syscall.Stat_t
	if syscall.Fstat(fd, &want) != nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.memory {
		b := &a.memory[i]
		if err := syscall.Fstat(int(b.file.Fd()), &have); err == nil && have.Dev == want.Dev && have.Ino == want.Ino {
			return b.bytes[offset:][:n]
		}
	}
	return nil
}
