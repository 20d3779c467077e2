package shmvan

import (
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/shm"
	"github.com/stepvan/stepvan/internal/sys"
)

// maxFiles is how many files of one peer are mapped at once.
const maxFiles = 4096

// peerMemory is what this side has mapped of the peer's memory files, and the grants of the peer that it knows.
type peerMemory struct {
	conn      *connection
	table     table // counts the uses of the peer's grants
	peerTable table // the peer's grants
	edge      shm.Edge
	grants    []atomic.Pointer[peerGrant] // by slot
	hasUnused atomic.Bool
	views     atomic.Int64 // that the program has

	mu     sync.Mutex
	socket sys.MessageBuffer
	bytes  [fileMessageBytes + 1]byte // of the last message
	files  []*peerFile
	unused []*peerGrant // replaced; the program may have views of them
}

// peerFile is a file of the peer, mapped here. It is unmapped when the peer has freed it and no grant uses it.
type peerFile struct {
	id   uint64
	mem  *shm.Memory
	all  []byte
	uses atomic.Int32 // grants, and 1 until the peer frees the file
}

func (f *peerFile) hold() { f.uses.Add(1) }

func (f *peerFile) drop() {
	if f.uses.Add(-1) == 0 {
		_ = f.mem.Close()
	}
}

// slice is [off, off+n) of the file, or an error for what lies outside.
func (f *peerFile) slice(off, n uint64) ([]byte, error) {
	if off > uint64(len(f.all)) || n > uint64(len(f.all))-off {
		return nil, errs.Protocol("segment", 0, "[%d,+%d) is outside of a file of %d bytes", off, n, len(f.all))
	}
	return f.all[off : off+n : off+n], nil
}

// file returns a mapped file of the peer. A file that it does not know yet comes from the socket.
func (m *peerMemory) file(id uint64) (*peerFile, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.fileLocked(id)
}

// fileLocked is file with m.mu held.
func (m *peerMemory) fileLocked(id uint64) (*peerFile, error) {
	if f := m.known(id); f != nil {
		return f, nil
	}
	for range 2 * maxFiles { // a peer that sends wake-ups without end must not keep the poller here
		f, err := m.readMessage()
		if errors.Is(err, sys.Again) {
			break
		}
		if err != nil {
			return nil, err
		}
		if f != nil && f.id == id {
			return f, nil
		}
	}
	return nil, errs.Protocol("file", 0, "a record names a file that was not sent")
}

func (m *peerMemory) known(id uint64) *peerFile {
	for _, f := range m.files {
		if f.id == id {
			return f
		}
	}
	return nil
}

// readMessage takes one message off the socket: a file, which is known from here on, or nil.
// sys.Again when the socket is empty. m.mu is held.
func (m *peerMemory) readMessage() (*peerFile, error) {
	n, fds, err := m.socket.Receive(m.conn.sock, m.bytes[:])
	if errors.Is(err, sys.ErrCut) {
		err = errs.Protocol("message", 0, "it is longer than any")
	}
	if err != nil || n == len(wakeByte) && len(fds) == 0 {
		return nil, err
	}
	defer sys.CloseAll(fds)
	b, le := &m.bytes, binary.LittleEndian
	id, size := le.Uint64(b[8:]), le.Uint64(b[16:])
	if n != fileMessageBytes || len(fds) != 1 || le.Uint64(b[:]) != fileMagic || m.known(id) != nil || len(m.files) >= maxFiles {
		return nil, errs.Protocol("file", 0, "a message that gives no file: %d bytes with %d descriptors", n, len(fds))
	}
	mem, err := shm.Map(fds[0], int64(size))
	if err != nil {
		return nil, peerError(err)
	}
	f := &peerFile{id: id, mem: mem, all: mem.Bytes()}
	f.uses.Store(1)
	m.files = append(m.files, f)
	return f, nil
}

// forget takes a record that names a file which the peer frees. Poller only.
func (m *peerMemory) forget(r *record) error {
	if len(r.bytes) < recBody+8 {
		return errs.Protocol("record", 0, "too short")
	}
	id := binary.LittleEndian.Uint64(r.bytes[recBody:])
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, f := range m.files {
		if f.id == id {
			m.files = append(m.files[:i], m.files[i+1:]...)
			m.dropGrants(f)
			f.drop()
			break
		}
	}
	return nil
}

// close unmaps all files. connection.mu is held, and the program has no view.
func (m *peerMemory) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dropGrants(nil)
	for _, f := range m.files {
		f.drop()
	}
	m.files = nil
}
