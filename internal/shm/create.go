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
	if huge && size%HugePageBytes != 0 {
		return nil, errs.Invalid("shm: a memory file of %d bytes: huge pages have %d", size, HugePageBytes)
	}
	if !huge { // huge pages are a reserve of their own, which answers by itself
		if err := checkAvailable(systemRoot(), size); err != nil {
			return nil, explain("allocating", size, err)
		}
	}
	return makeFile(name, size, huge, 0, seals)
}

// CreateOneWriter makes a memory file that this process alone can write. A process that gets its
// descriptor can only map it for reading (MapReadOnly). The file is allocated and sealed as Create does it, and mapped
// page by page at once: neither writing to it nor reading it with MapReadOnly meets a page fault. Kernels before 5.1
// cannot keep a peer from mapping it for writing.
func CreateOneWriter(name string, size int64) (*Memory, error) {
	m, err := makeFile(name, size, false, unix.MAP_POPULATE, seals|unix.F_SEAL_FUTURE_WRITE)
	if err == nil {
		m.edge = edgeOf(m.fd)
	}
	return m, err
}

func makeFile(name string, size int64, huge bool, mapFlags, seal int) (*Memory, error) {
	if err := checkSize(size); err != nil {
		return nil, err
	}
	fd, err := open(name, huge)
	if err != nil {
		return nil, explain("creating", size, err)
	}
	mem, err := fill(fd, size, mapFlags, seal)
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return &Memory{fd: fd, size: size, huge: huge, mem: mem}, nil
}

func checkSize(size int64) error {
	if size <= 0 || int64(int(size)) != size {
		return errs.Invalid("shm: memory of %d bytes", size)
	}
	return nil
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

// fill sizes, allocates, maps and seals the file. It maps before it seals: a seal may forbid later mappings that can
// write.
func fill(fd int, size int64, mapFlags, seal int) ([]byte, error) {
	if err := allocate(fd, size); err != nil {
		return nil, err
	}
	mem, err := mapFile(fd, size, readWrite, mapFlags)
	if err != nil {
		return nil, err
	}
	_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seal)
	if errors.Is(err, unix.EINVAL) { // kernels before 5.1 do not know F_SEAL_FUTURE_WRITE
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	}
	if err != nil {
		return nil, errors.Join(explain("sealing", size, err), unix.Munmap(mem))
	}
	return mem, nil
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
	case errors.Is(err, unix.ENOMEM), errors.Is(err, unix.ENOSPC):
		err = fmt.Errorf("%w: %w", stepvan.ErrNoMemory, err)
		hint = ": the system or container has no memory left for it: free some, raise the limit, or ask for less"
	case errors.Is(err, unix.ENOSYS):
		hint = ": the kernel has no memfd_create: Linux 4.16 or later is needed"
	}
	return fmt.Errorf("shm: %s %d bytes of shared memory: %w%s", doing, size, errs.Descriptors(err), hint)
}
