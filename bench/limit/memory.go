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
	from, to    []byte         // of what this side sends: memory of its own, and of the file; in place both are the file
	inPlace     bool
	picker      *picker // in place of from
	in          []byte  // of the file, where the other side's bytes arrive
	sent        uint64  // of own
	received    uint64  // of others
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
	m := newMemory(s, file, answeredAt, pushedAt)
	m.in, m.to = fileParts(s, file)
	if m.picker = newPicker(&s.Rows); m.picker == nil {
		m.from = m.source(s.Pull)
	}
	return m, fmt.Sprintf(addrFormat, os.Getpid(), file.FD()), nil
}

// fileParts are the places of the pushed and of the pulled bytes.
func fileParts(s *Spec, file *shm.Memory) (pushed, pulled []byte) {
	return file.Bytes()[bytesAt:][:s.Push], file.Bytes()[bytesAt+onPages(s.Push):][:s.Pull]
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
	m := newMemory(s, file, pushedAt, answeredAt)
	m.to, m.in = fileParts(s, file)
	m.from = m.source(s.Push)
	return m, nil
}

func newMemory(s *Spec, file *shm.Memory, own, others int) *memory {
	return &memory{file: file, own: number(file, own), others: number(file, others), inPlace: s.InPlace, spin: s.spin()}
}

// source is where this side writes its bytes.
func (m *memory) source(bytes int64) []byte {
	if m.inPlace {
		return m.to
	}
	return written(bytes)
}

// number is the atomic number at an offset, which is a multiple of 8.
func number(file *shm.Memory, offset int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&file.Bytes()[offset]))
}

// send copies this side's bytes into the file, unless they are there, and raises its number.
func (m *memory) send() error {
	switch {
	case m.picker != nil:
		m.picker.fill(m.to)
	case !m.inPlace:
		copy(m.to, m.from)
	}
	m.sent++
	m.own.Store(m.sent)
	return nil
}

// receive spins until the other side has raised its number once more.
func (m *memory) receive() error {
	m.received++
	for {
		switch n := m.others.Load(); {
		case n == goneNumber:
			return errGone
		case n >= m.received:
			m.spin.found()
			return nil
		}
		if err := m.spin.missed(); err != nil {
			return err
		}
	}
}

func (m *memory) buffers() (out, in []byte) { return m.from, m.in }

// close raises the number to goneNumber, and unmaps the file.
func (m *memory) close() {
	m.own.Store(goneNumber)
	_ = m.file.Close() // the bytes are of no further use
}
