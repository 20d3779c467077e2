package shm

import (
	"errors"

	"golang.org/x/sys/unix"
)

// NoFiles reports whether an error of Create says that this process may have no memory files at all. An example is a
// container whose seccomp profile forbids memfd_create or the sealing.
func NoFiles(err error) bool {
	return errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOSYS)
}

// Anonymous takes memory that is in no file, so that no other process can map it. It is for use where Create
// fails with NoFiles. All of it is allocated, in small pages, and zero. Its FD is -1.
func Anonymous(size int64) (*Memory, error) {
	if err := checkSize(size); err != nil {
		return nil, err
	}
	if err := checkAvailable(systemRoot(), size); err != nil {
		return nil, explain("allocating", size, err)
	}
	mem, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		return nil, explain("mapping", size, err)
	}
	return &Memory{fd: -1, size: size, mem: mem}, nil
}
