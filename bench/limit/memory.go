package limit

import (
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/shm"
)

// The file that both sides map. It has two numbers, far enough apart for the processor's
// prefetcher. The pushed and the pulled bytes follow, each on pages of their own.
const (
	pushedAt   = 0
	answeredAt = 1 << 10
	bytesAt    = 4 << 10
	pageBytes  = 4 << 10
)

// goneNumber is the number of a side that has closed.
const goneNumber = ^uint64(0)

// memory is one side of the file.
type memory struct {
	file        *shm.Memory
	own, others *atomic.Uint64 // what this side raises, and waits for
	from, to    []byte         // memory of its own, and of the file
	count       uint64         // of own
	spin        spin
}

func fileBytes(s *Spec) int64 { return bytesAt + onPages(s.Push) + onPages(s.Pull) }

func onPages(bytes int64) int64 { return (bytes + pageBytes - 1) / pageBytes * pageBytes }

// createMemory makes the answerer's side, and the address of the file.
func createMemory(s *Spec) (*memory, string, error) {
	file, err := shm.Create("stepvan-limit", fileBytes(s), false)
	if err != nil {
		return nil, "", err
	}
	m := &memory{
		file: file, own: number(file, answeredAt), others: number(file, pushedAt),
		from: written(s.Pull), to: file.Bytes()[bytesAt+onPages(s.Push):][:s.Pull],
		spin: s.spin(),
	}
	return m, fmt.Sprintf(addrFormat, os.Getpid(), file.FD()), nil
}

// addrFormat names the file as a descriptor of the process that made it.
const addrFormat = "/proc/%d/fd/%d"

// openMemory makes the caller's side.
func openMemory(s *Spec, addr string) (*memory, error) {
	var pid, fd uint32
	if _, err := fmt.Sscanf(addr, addrFormat, &pid, &fd); err != nil || addr != fmt.Sprintf(addrFormat, pid, fd) {
		return nil, errs.Invalid("%q is not the address of a shared memory file", addr)
	}
	opened, err := os.OpenFile(addr, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open the shared memory of the limit: %w", err)
	}
	defer opened.Close()
	file, err := shm.Map(int(opened.Fd()), fileBytes(s))
	if err != nil {
		return nil, err
	}
	return &memory{
		file: file, own: number(file, pushedAt), others: number(file, answeredAt),
		from: written(s.Push), to: file.Bytes()[bytesAt:][:s.Push],
		spin: s.spin(),
	}, nil
}

// number is the atomic number at an offset, which is a multiple of 8.
func number(file *shm.Memory, offset int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&file.Bytes()[offset]))
}

// hand copies this side's bytes into the file and raises its number.
func (m *memory) hand() {
	copy(m.to, m.from)
	m.count++
	m.own.Store(m.count)
}

// await spins until the other side has reached a number.
func (m *memory) await(reached uint64) error {
	for {
		switch n := m.others.Load(); {
		case n == goneNumber:
			return errGone
		case n >= reached:
			m.spin.found()
			return nil
		}
		if err := m.spin.missed(); err != nil {
			return err
		}
	}
}

func (m *memory) push() error {
	m.hand()
	return nil
}

func (m *memory) wait() error { return m.await(m.count) }

func (m *memory) answer() error {
	err := m.await(m.count + 1)
	if err == nil {
		m.hand()
	}
	return err
}

// close raises the number to goneNumber, and unmaps the file.
func (m *memory) close() {
	m.own.Store(goneNumber)
	_ = m.file.Close() // the bytes are of no further use
}
