package shmvan

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/shm"
)

// mostFiles is how many files of one peer are mapped at once.
const maxFiles = 4096

// peerFile is a file of the peer, mapped here. It is unmapped when it is forgotten and nobody uses it.
type peerFile struct {
	id   uint64
	mem  *shm.Memory
	all  []byte
	uses atomic.Int32 // claims, and 1 until it is forgotten
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
		return nil, &stepvan.ProtocolError{Field: "segment", Reason: fmt.Sprintf("[%d,+%d) is outside of a file of %d bytes", off, n, len(f.all))}
	}
	return f.all[off : off+n : off+n], nil
}

// offer makes sure that the peer has the file. stepvan.ErrWouldBlock: not at this moment. Guarded by endpoint.mu.
func (e *endpoint) offer(file uint64, fd int, size int) error {
	for _, id := range e.sharedFiles {
		if id == file {
			return nil
		}
	}
	if len(e.sharedFiles) >= maxFiles {
		return errManyFiles
	}
	var b [fileMessageBytes]byte
	binary.LittleEndian.PutUint64(b[:], fileMagic)
	binary.LittleEndian.PutUint64(b[8:], file)
	binary.LittleEndian.PutUint64(b[16:], uint64(size))
	if err := sendDescriptors(e.sock, b[:], fd); err != nil {
		return err
	}
	e.sharedFiles = append(e.sharedFiles, file)
	return nil
}

var errManyFiles = fmt.Errorf("the peer has %d files of this process, and takes no more: %w", maxFiles, errs.ErrNoGrant)

// file returns a mapped file of the peer. It fetches what it does not know yet.
func (e *endpoint) file(id uint64) (*peerFile, error) {
	e.filesMu.Lock()
	defer e.filesMu.Unlock()
	return e.fileLocked(id)
}

// fileLocked is file with filesMu held.
func (e *endpoint) fileLocked(id uint64) (*peerFile, error) {
	if f := e.known(id); f != nil {
		return f, nil
	}
	for range 2 * maxFiles { // a peer that sends wake-ups without end must not keep the poller here
		f, err := e.readMessage()
		if errors.Is(err, errNothing) {
			break
		}
		if err != nil {
			return nil, err
		}
		if f != nil && f.id == id {
			return f, nil
		}
	}
	return nil, &stepvan.ProtocolError{Field: "file", Reason: "a record names a file that was not sent"}
}

func (e *endpoint) known(id uint64) *peerFile {
	for _, f := range e.files {
		if f.id == id {
			return f
		}
	}
	return nil
}

// forget lets go of a file that the peer gives up.
func (e *endpoint) forget(id uint64) {
	e.filesMu.Lock()
	defer e.filesMu.Unlock()
	for i, f := range e.files {
		if f.id == id {
			e.files = append(e.files[:i], e.files[i+1:]...)
			e.dropGrants(f)
			f.drop()
			return
		}
	}
}
