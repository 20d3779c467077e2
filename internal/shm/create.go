package shm

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/sys"
)

const (
	readWrite = unix.PROT_READ | unix.PROT_WRITE
	// seals are those that every file has: it keeps its size, and no process can
	// add a seal that would take writing away.
	seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	// maxName is the kernel's limit of a name, less its "memfd:".
	maxName = 249
	// stepBytes is allocated by one call. A signal interrupts the call and undoes
	// what it has done, so a call must be shorter than the time between signals
	// (a profiler sends one every 10 ms).
	stepBytes = HugePageBytes
)

// Create makes a memory file of size bytes, allocates all of it, seals its size
// and maps it. With huge it is in huge pages, size must be a multiple of
// HugePageBytes, and it fails where the system has none to give. The name shows
// in /proc/PID/maps. The memory is zero.
func Create(name string, size int64, huge bool) (*Memory, error) {
	if size <= 0 || huge && size%HugePageBytes != 0 {
		return nil, errs.Invalid("shm: a memory file of %d bytes (huge pages: %t)", size, huge)
	}
	if !huge { // huge pages are a reserve of their own, which answers by itself
		if err := checkAvailable(systemRoot(), size); err != nil {
			return nil, explain("allocating", size, err)
		}
	}
	fd, err := open(name, huge)
	if err != nil {
		return nil, explain("creating", size, err)
	}
	mem, err := fill(fd, size)
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return &Memory{fd: fd, size: size, huge: huge, mem: mem}, nil
}

func open(name string, huge bool) (int, error) {
	flags := unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	if huge {
		flags |= unix.MFD_HUGETLB | unix.MFD_HUGE_2MB
	}
	name = strings.ReplaceAll(name, "\x00", "")
	name = name[:min(len(name), maxName)]
	fd, err := unix.MemfdCreate(name, flags|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // kernels before 6.3 do not know MFD_NOEXEC_SEAL
		fd, err = unix.MemfdCreate(name, flags)
	}
	return fd, err
}

// fill sizes, allocates, seals and maps the file, in this order.
func fill(fd int, size int64) ([]byte, error) {
	if err := allocate(fd, size); err != nil {
		return nil, err
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		return nil, explain("sealing", size, err)
	}
	return mapFile(fd, size, readWrite, 0)
}

// allocate sizes the file and gives it all of its memory.
func allocate(fd int, size int64) error {
	if err := sys.Retry(func() error { return unix.Ftruncate(fd, size) }); err != nil {
		return explain("sizing", size, err)
	}
	for off := int64(0); off < size; off += stepBytes {
		n := min(stepBytes, size-off)
		if err := sys.Retry(func() error { return unix.Fallocate(fd, 0, off, n) }); err != nil {
			return explain("allocating", size, err)
		}
	}
	return nil
}

// explain says what an exhausted resource is and what to do.
func explain(doing string, size int64, err error) error {
	hint := ""
	switch {
	case errors.Is(err, unix.EMFILE):
		hint = "; this process has no file descriptor left: raise the limit (ulimit -n)"
	case errors.Is(err, unix.ENFILE):
		hint = "; the system has no file descriptor left: raise fs.file-max"
	case errors.Is(err, unix.ENOMEM), errors.Is(err, unix.ENOSPC):
		err = fmt.Errorf("%w: %w", stepvan.ErrNoMemory, err)
		hint = "; the system or container has no memory left for it: free some, raise the limit, or ask for less"
	case errors.Is(err, unix.ENOSYS):
		hint = "; the kernel has no memfd_create: Linux 4.16 or later is needed"
	}
	return fmt.Errorf("shm: %s %d bytes of shared memory: %w%s", doing, size, err, hint)
}
