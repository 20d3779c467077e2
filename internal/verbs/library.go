//go:build cgo

package verbs

// #cgo LDFLAGS: -ldl
// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"math/bits"
	"syscall"
	"unsafe"
)

// Library is libibverbs and librdmacm. A process may have several; they share what the process has once, its
// connections to the devices.
type Library struct {
	objects registry
	fork    ForkSafety
}

// Load opens the libraries, which stay open, and makes registered memory safe against forks of this process. That must
// come before any other library of the process registers memory. The error is a LibraryError, ErrNotInBuild, or an
// Error of ibv_fork_init.
func Load(o Options) (*Library, error) {
	if why := C.sv_load(); why != nil {
		return nil, &LibraryError{Reason: C.GoString(why)}
	}
	fork := int(C.sv_fork())
	if fork < 0 {
		return nil, failed(opFork, "", syscall.Errno(-fork))
	}
	return &Library{objects: registry{trace: o.Trace}, fork: ForkSafety(fork)}, nil
}

// tryLoad opens libraries of other names, and forgets them.
func tryLoad(ibverbs, rdmacm string) error {
	names := [2]*C.char{C.CString(ibverbs), C.CString(rdmacm)}
	defer C.free(unsafe.Pointer(names[0]))
	defer C.free(unsafe.Pointer(names[1]))
	if why := C.sv_try_load(names[0], names[1]); why != nil {
		return &LibraryError{Reason: C.GoString(why)}
	}
	return nil
}

// Fork tells what a fork does to registered memory.
func (l *Library) Fork() ForkSafety { return l.fork }

// Live lists the open objects. A test that has closed everything expects none.
func (l *Library) Live() []Object { return l.objects.objects() }

// Devices lists the devices that libibverbs has a provider for. The kernel may have more (/sys/class/infiniband).
func (l *Library) Devices() ([]DeviceInfo, error) {
	var n C.int
	list, err := C.sv_device_list(&n)
	if list == nil {
		return nil, call("get_device_list", "", err)
	}
	defer C.sv_free_device_list(list)
	infos := make([]DeviceInfo, 0, int(n))
	for i := range n {
		d := C.sv_device_at(list, i)
		infos = append(infos, DeviceInfo{
			Name:      C.GoString(&d.of.name[0]),
			Uverbs:    C.GoString(&d.of.dev_name[0]),
			Path:      C.GoString(&d.of.ibdev_path[0]),
			GUID:      bits.ReverseBytes64(uint64(d.guid)),
			Transport: Transport(d.of.transport_type),
		})
	}
	return infos, nil
}

// call makes the error of a function of C that has set errno.
func call(op, device string, err error) error {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		errno = syscall.EIO
	}
	return failed(op, device, errno)
}

// result makes the error of a function of C that has returned an errno.
func result(op, device string, errno C.int) error {
	if errno == 0 {
		return nil
	}
	return failed(op, device, syscall.Errno(errno))
}

// destroy ends an object of C.
func destroy(op, device string, kind C.enum_sv_kind, object unsafe.Pointer) error {
	return result(op, device, C.sv_destroy(kind, object))
}

// zeroed is memory of C for n objects of size bytes.
func zeroed(n int, size uintptr) (unsafe.Pointer, error) {
	p, err := C.calloc(C.size_t(n), C.size_t(size))
	if p == nil {
		return nil, fmt.Errorf("allocate %d objects of %d bytes: %w", n, size, err)
	}
	return p, nil
}
