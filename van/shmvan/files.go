package shmvan

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/shm"
)

// peerMemory is the memory of the peer that this side has mapped, and both tables of grants.
type peerMemory struct {
	e         *endpoint
	table     table // own
	peerTable table
	claims    []atomic.Pointer[claim] // grants of the peer, by slot
	views     atomic.Int64            // of the peer's memory, with the program
	violation atomic.Pointer[error]   // what a goroutine other than Poll's found wrong with the peer
	replaced  atomic.Bool             // unused is not empty

	mu     sync.Mutex // guards the fields below
	box    fileReceiver
	files  []*peerFile
	unused []*claim // replaced; the program may still hold views of them
}

// mostFiles is how many files of one peer are mapped at once.
const mostFiles = 4096

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

// passFile makes sure that the peer has the file. stepvan.ErrWouldBlock: the socket is full. Guarded by sendSide.mu.
func (tx *sendSide) passFile(file uint64, fd int, size int) error {
	for _, id := range tx.offered {
		if id == file {
			return nil
		}
	}
	if len(tx.offered) >= mostFiles {
		return errManyFiles
	}
	var b [fileMessageBytes]byte
	binary.LittleEndian.PutUint64(b[:], fileMagic)
	binary.LittleEndian.PutUint64(b[8:], file)
	binary.LittleEndian.PutUint64(b[16:], uint64(size))
	if err := sendFile(tx.e.sock, b[:], fd); err != nil {
		return err
	}
	tx.offered = append(tx.offered, file)
	return nil
}

var errManyFiles = fmt.Errorf("the peer has %d files of this process, and takes no more: %w", mostFiles, errs.ErrNoGrant)

// file returns a mapped file of the peer. It fetches what it does not know yet.
func (pm *peerMemory) file(id uint64) (*peerFile, error) {
	pm.mu.Lock()
	defer pm.mu.Unlock()
	return pm.fileLocked(id)
}

// fileLocked is file with filesMu held.
func (pm *peerMemory) fileLocked(id uint64) (*peerFile, error) {
	if f := pm.known(id); f != nil {
		return f, nil
	}
	for range 2 * mostFiles { // a peer that sends wake-ups without end must not keep the poller here
		f, err := pm.receiveFile()
		if errors.Is(err, errEmpty) {
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

func (pm *peerMemory) known(id uint64) *peerFile {
	for _, f := range pm.files {
		if f.id == id {
			return f
		}
	}
	return nil
}

// forget drops a file that the peer frees.
func (pm *peerMemory) forget(id uint64) {
	pm.mu.Lock()
	defer pm.mu.Unlock()
	for i, f := range pm.files {
		if f.id == id {
			pm.files = append(pm.files[:i], pm.files[i+1:]...)
			pm.dropClaims(f)
			f.drop()
			return
		}
	}
}
