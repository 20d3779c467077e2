package shm

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// HugePageBytes is the size of the huge pages that Create uses.
const HugePageBytes = 2 << 20

// Memory is a mapped memory file. Its bytes are shared with every process that
// maps the file.
type Memory struct {
	fd   int // -1 when another process made the file
	size int64
	huge bool
	edge Edge

	mu  sync.Mutex
	mem []byte // nil once closed
}

// Bytes returns the mapping, nil once closed. The caller must know that Close
// does not come while it uses the bytes: memory that is not mapped faults.
func (m *Memory) Bytes() []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mem
}

// Size returns the bytes of the file.
func (m *Memory) Size() int64 { return m.size }

// FD returns the descriptor, for passing to a peer. It belongs to the Memory
// and is closed with it; -1 for memory that Map made.
func (m *Memory) FD() int { return m.fd }

// Edge is the order between the writers and the readers of the memory. CreateOneWriter and MapReadOnly give the same
// one for the same file.
func (m *Memory) Edge() Edge { return m.edge }

// Huge reports whether the memory is in huge pages of its own.
func (m *Memory) Huge() bool { return m.huge }

// Close unmaps the memory and closes the descriptor that Create made. The file
// lives on while other processes map it. Closing again has no effect.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mem == nil {
		return nil
	}
	err := unix.Munmap(m.mem)
	m.mem = nil
	if m.fd >= 0 {
		if cerr := unix.Close(m.fd); err == nil {
			err = cerr
		}
	}
	if err != nil {
		return fmt.Errorf("shm: unmapping %d bytes: %w", m.size, err)
	}
	return nil
}

// mapFile maps the whole file, shared with the other processes that map it.
func mapFile(fd int, size int64, access, flags int) ([]byte, error) {
	mem, err := unix.Mmap(fd, 0, int(size), access, unix.MAP_SHARED|flags)
	if err != nil {
		return nil, explain("mapping", size, err)
	}
	return mem, nil
}
