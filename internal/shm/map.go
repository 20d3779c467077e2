package shm

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/internal/errs"
)

// blockBytes is the unit of st_blocks.
const blockBytes = 512

// Map maps all of a memory file that another process made. The file must be
// exactly size bytes, fully allocated, and sealed as Create does it; any other
// is refused with stepvan.ErrInvalid before it is mapped. The caller keeps the
// descriptor and may close it at once: the mapping does not need it.
func Map(fd int, size int64) (*Memory, error) {
	return mapChecked(fd, size, readWrite, 0)
}

// MapReadOnly is Map for reading, and maps page by page at once. Writing to the memory faults.
func MapReadOnly(fd int, size int64) (*Memory, error) {
	m, err := mapChecked(fd, size, unix.PROT_READ, unix.MAP_POPULATE)
	if err == nil {
		m.edge = edgeOf(fd)
	}
	return m, err
}

func mapChecked(fd int, size int64, access, flags int) (*Memory, error) {
	if err := inspect(fd, size); err != nil {
		return nil, err
	}
	mem, err := mapFile(fd, size, access, flags)
	if err != nil {
		return nil, err
	}
	return &Memory{fd: -1, size: size, mem: mem}, nil
}

// inspect checks the seals first: only a file that is sealed keeps the size
// that is looked at next.
func inspect(fd int, size int64) error {
	have, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return refuse("it has no seals (%v); only a memfd may be shared", err)
	}
	if have&seals != seals {
		return refuse("its seals %#x lack %#x: its owner could change its size under the mapping", have, seals&^have)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("shm: looking at a shared memory file: %w", err)
	}
	if err := checkSize(size); err != nil || st.Size != size {
		return refuse("it has %d bytes and was announced with %d", st.Size, size)
	}
	if int64(st.Blocks)*blockBytes < size {
		return refuse("only %d of its %d bytes are allocated", int64(st.Blocks)*blockBytes, size)
	}
	return nil
}

func refuse(format string, args ...any) error {
	return errs.Invalid("shm: the peer's shared memory file is not mapped: %s", fmt.Sprintf(format, args...))
}
