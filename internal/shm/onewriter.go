package shm

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/internal/errs"
)

// CreateOneWriter makes a memory file that this process alone can write. A process that gets its
// descriptor can only map it for reading (MapReadOnly). The file is allocated and sealed as Create does it, and mapped
// page by page at once: neither writing to it nor reading it with MapReadOnly meets a page fault. Kernels before 5.1
// cannot keep a peer from mapping it for writing.
func CreateOneWriter(name string, size int64) (*Memory, error) {
	if size <= 0 || int64(int(size)) != size {
		return nil, errs.Invalid("shm: a memory file of %d bytes", size)
	}
	fd, err := open(name, false)
	if err != nil {
		return nil, explain("creating", size, err)
	}
	mem, err := fillOneWriter(fd, size)
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return &Memory{fd: fd, size: size, mem: mem}, nil
}

// fillOneWriter is fill, but maps before it seals: the seal forbids later mappings that can write.
func fillOneWriter(fd int, size int64) ([]byte, error) {
	if err := allocate(fd, size); err != nil {
		return nil, err
	}
	mem, err := mapFile(fd, size, readWrite, unix.MAP_POPULATE)
	if err != nil {
		return nil, err
	}
	_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals|unix.F_SEAL_FUTURE_WRITE)
	if errors.Is(err, unix.EINVAL) {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	}
	if err != nil {
		return nil, errors.Join(explain("sealing", size, err), unix.Munmap(mem))
	}
	return mem, nil
}

// Identity names a memory file on this machine: the same for every descriptor of it.
func Identity(fd int) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, fmt.Errorf("shm: looking at a shared memory file: %w", err)
	}
	return st.Ino, nil
}
