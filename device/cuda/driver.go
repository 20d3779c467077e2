//go:build cgo

package cuda

// #cgo LDFLAGS: -ldl
// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"fmt"
	"os"
	"sync"
	"unsafe"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/device"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/tensor"
)

// library is what NVIDIA's kernel driver installs.
const library = "libcuda.so.1"

// Use opens libcuda, and registers the driver for [tensor.DeviceCUDA]. Later calls return what the first one did. It
// may take seconds, since it starts CUDA in this process. The error is stepvan.ErrNotSupported where there is no
// library or no device, and says why.
func Use() error { return use() }

var use = sync.OnceValue(func() error {
	_, err := open(library)
	return err
})

func open(name string) (unregister func(), err error) {
	cName := C.CString(name)
	defer C.free(unsafe.Pointer(cName))
	var n C.int
	if why := C.cuda_load(cName, &n); why != nil {
		return nil, fmt.Errorf("cuda: the library cannot be used: %s: install NVIDIA's driver: %w", C.GoString(why), stepvan.ErrNotSupported)
	}
	if n == 0 {
		return nil, fmt.Errorf("cuda: this process sees no device: set CUDA_VISIBLE_DEVICES: %w", stepvan.ErrNotSupported)
	}
	return device.Register(tensor.DeviceCUDA, driver{devices: int32(n)})
}

// driver implements [device.Driver].
type driver struct{ devices int32 }

// Errors of libcuda.
const (
	invalidValue = 1
	notSupported = 801
)

// result makes an error of a result of libcuda. Error 1 says that an argument does not fit.
func result(op string, code C.int) error {
	switch code {
	case 0:
		return nil
	case invalidValue:
		return errs.Invalid("cuda: %s: %s (error 1)", op, C.GoString(C.cuda_text(code)))
	}
	return fmt.Errorf("cuda: %s: %s (error %d)", op, C.GoString(C.cuda_text(code)), code)
}

// Locate implements [device.Driver].
func (driver) Locate(address uintptr) (tensor.Device, error) {
	var n C.int
	if err := result("ask for the kind of an address", C.cuda_locate(C.uint64_t(address), &n)); err != nil || n < 0 {
		return tensor.Device{}, err
	}
	return tensor.Device{Kind: tensor.DeviceCUDA, ID: int32(n)}, nil
}

// number returns the device of a stream for libcuda.
func (d driver) number(s device.Stream) (C.int, error) {
	if s.Device.Kind != tensor.DeviceCUDA || s.Device.ID < 0 || s.Device.ID >= d.devices {
		return 0, errs.Invalid("stream %#x: there is no such device (got %s, want one of %d of cuda)", s.Handle, s.Device, d.devices)
	}
	return C.int(s.Device.ID), nil
}

// NewStream implements [device.Driver].
func (d driver) NewStream(at tensor.Device) (device.Stream, error) {
	n, err := d.number(device.Stream{Device: at})
	if err != nil {
		return device.Stream{}, err
	}
	var handle C.uint64_t
	err = result("make a stream", C.cuda_stream_create(n, &handle))
	return device.Stream{Device: at, Handle: uintptr(handle)}, err
}

// CloseStream implements [device.Driver].
func (d driver) CloseStream(s device.Stream) error {
	n, err := d.number(s)
	if err != nil {
		return err
	}
	return result("end a stream", C.cuda_stream_destroy(n, C.uint64_t(s.Handle)))
}

// ToHost implements [device.Driver].
func (d driver) ToHost(s device.Stream, dst []byte, src uintptr) error {
	n, err := d.number(s)
	if err != nil {
		return err
	}
	return result("copy to the host", C.cuda_to_host(n, C.uint64_t(s.Handle), unsafe.Pointer(unsafe.SliceData(dst)), C.uint64_t(src), C.size_t(len(dst))))
}

// FromHost implements [device.Driver].
func (d driver) FromHost(s device.Stream, dst uintptr, src []byte) error {
	n, err := d.number(s)
	if err != nil {
		return err
	}
	return result("copy to the device", C.cuda_from_host(n, C.uint64_t(s.Handle), C.uint64_t(dst), unsafe.Pointer(unsafe.SliceData(src)), C.size_t(len(src))))
}

// Record implements [device.Driver].
func (d driver) Record(s device.Stream) (device.Event, error) {
	n, err := d.number(s)
	if err != nil {
		return nil, err
	}
	var own C.int
	if err := result("look at a stream", C.cuda_stream_check(n, C.uint64_t(s.Handle), &own)); err != nil {
		return nil, err
	}
	if own == 0 {
		return nil, errs.Invalid("stream %#x: it does not belong to the primary context of %s: give a stream of that device", s.Handle, s.Device)
	}
	var handle C.uint64_t
	if err := result("record an event", C.cuda_event_record(n, C.uint64_t(s.Handle), &handle)); err != nil {
		return nil, err
	}
	return event{n, handle}, nil
}

// Follow implements [device.Driver].
func (d driver) Follow(s device.Stream, e device.Event) error {
	n, err := d.number(s)
	if err != nil {
		return err
	}
	other, ok := e.(event)
	if !ok {
		return errs.Invalid("stream %#x: the event is of another kind of device", s.Handle)
	}
	return result("have a stream wait", C.cuda_stream_follow(n, C.uint64_t(s.Handle), other.handle))
}

// Pin implements [device.Driver].
func (driver) Pin(mem []byte) error {
	return result("pin memory", C.cuda_pin(unsafe.Pointer(unsafe.SliceData(mem)), C.size_t(len(mem))))
}

// Unpin implements [device.Driver].
func (driver) Unpin(mem []byte) error {
	return result("unpin memory", C.cuda_unpin(unsafe.Pointer(unsafe.SliceData(mem))))
}

// Export implements [device.Driver]. CUDA exports whole pages of the host's size.
func (d driver) Export(at tensor.Device, address uintptr, n int64) (device.DMABuf, error) {
	number, err := d.number(device.Stream{Device: at})
	if err != nil {
		return device.DMABuf{}, err
	}
	page := uintptr(os.Getpagesize())
	start := address &^ (page - 1)
	end := (address + uintptr(n) + page - 1) &^ (page - 1)
	var fd C.int
	code := C.cuda_export(number, C.uint64_t(start), C.size_t(end-start), &fd)
	if code == -1 {
		return device.DMABuf{}, fmt.Errorf("cuda: export a dma-buf: %s cannot do that: install a later driver: %w", library, stepvan.ErrNotSupported)
	}
	if err := result("export a dma-buf", code); err != nil {
		if code == invalidValue || code == notSupported {
			err = fmt.Errorf("%w: %w", err, stepvan.ErrNotSupported) // it depends on the allocator of the memory as well
		}
		return device.DMABuf{}, err
	}
	return device.DMABuf{FD: int(fd), Offset: int64(address - start)}, nil
}

// Flush implements [device.Driver].
func (d driver) Flush(at tensor.Device) error {
	number, err := d.number(device.Stream{Device: at})
	if err != nil {
		return err
	}
	code := C.cuda_flush(number)
	if code == -1 {
		return fmt.Errorf("cuda: flush what others have written: %s cannot do that for %s: %w", library, at, stepvan.ErrNotSupported)
	}
	return result("flush what others have written", code)
}

// event implements [device.Event].
type event struct {
	device C.int
	handle C.uint64_t
}

// Query implements [device.Event].
func (e event) Query() (bool, error) {
	var over C.int
	if err := result("ask for an event", C.cuda_event_query(e.device, e.handle, &over)); err != nil {
		return true, err
	}
	return over != 0, nil
}

// Close implements [device.Event].
func (e event) Close() { C.cuda_event_destroy(e.device, e.handle) }
