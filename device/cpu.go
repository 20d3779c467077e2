package device

import (
	"fmt"
	"unsafe"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/tensor"
)

// CPU is the driver for the processor. Its copies are over when the call returns, and so are its events. Addresses are
// those of this process. The caller keeps their memory alive.
type CPU struct{}

// Locate implements [Driver]. The processor is what holds memory that nobody else knows.
func (CPU) Locate(uintptr) (tensor.Device, error) { return tensor.Device{}, nil }

// NewStream implements [Driver].
func (CPU) NewStream(d tensor.Device) (Stream, error) { return Stream{Device: d}, nil }

// CloseStream implements [Driver].
func (CPU) CloseStream(Stream) error { return nil }

// ToHost implements [Driver].
func (CPU) ToHost(_ Stream, dst []byte, src uintptr) error {
	copy(dst, hostBytes(src, len(dst)))
	return nil
}

// FromHost implements [Driver].
func (CPU) FromHost(_ Stream, dst uintptr, src []byte) error {
	copy(hostBytes(dst, len(src)), src)
	return nil
}

// hostBytes returns n bytes of memory at an address.
func hostBytes(address uintptr, n int) []byte {
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&address)), n) // not a conversion: the memory may be of anybody
}

// Flush implements [Driver].
func (CPU) Flush(tensor.Device) error { return nil }

// Record implements [Driver].
func (CPU) Record(Stream) (Event, error) { return over{}, nil }

// Follow implements [Driver].
func (CPU) Follow(Stream, Event) error { return nil }

// Pin implements [Driver].
func (CPU) Pin([]byte) error { return nil }

// Unpin implements [Driver].
func (CPU) Unpin([]byte) error { return nil }

// Export implements [Driver].
func (CPU) Export(d tensor.Device, _ uintptr, _ int64) (DMABuf, error) {
	return DMABuf{}, fmt.Errorf("export: memory of %s: it needs no dma-buf: register its address: %w", d, stepvan.ErrNotSupported)
}

// over is the event of work that is over.
type over struct{}

func (over) Query() (bool, error) { return true, nil }
func (over) Close()               {}
