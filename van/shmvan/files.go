package shmvan

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/shm"
)

// Files go to the peer through the socket, before the first record that names them: number and size, with the descriptor.
const (
	parcelMagic = 0x70617263656c0001
	parcelBytes = 24
	// mostFiles is how many files of one peer are mapped at once.
	mostFiles = 4096
)

// peerFile is a file of the peer, mapped here. It is unmapped when it is forgotten and nobody uses it.
type peerFile struct {
	id   uint64
	mem  *shm.Memory
	all  []byte
	uses atomic.Int32 // views, writes, and 1 until it is forgotten
}

func (f *peerFile) hold() bool {
	for {
		n := f.uses.Load()
		if n == 0 {
			return false
		}
		if f.uses.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (f *peerFile) drop() {
	if f.uses.Add(-1) == 0 {
		_ = f.mem.Close()
	}
}

// slice is [off, off+n) of the file, or an error for what lies outside.
func (f *peerFile) slice(off, n uint64) ([]byte, error) {
	if off > uint64(len(f.all)) || n > uint64(len(f.all))-off {
		return nil, &errs.ProtocolError{Field: "segment", Reason: fmt.Sprintf("[%d,+%d) is outside of a file of %d bytes", off, n, len(f.all))}
	}
	return f.all[off : off+n : off+n], nil
}

// offer makes sure that the peer has the file. false: not at this moment, or never. Guarded by endpoint.mu.
func (e *endpoint) offer(file uint64, fd int, size int) bool {
	for _, id := range e.offered {
		if id == file {
			return true
		}
	}
	if len(e.offered) >= mostFiles {
		return false
	}
	var b [parcelBytes]byte
	binary.LittleEndian.PutUint64(b[:], parcelMagic)
	binary.LittleEndian.PutUint64(b[8:], file)
	binary.LittleEndian.PutUint64(b[16:], uint64(size))
	if !sendParcel(e.sock, b[:], fd) {
		return false
	}
	e.offered = append(e.offered, file)
	return true
}

// file returns a mapped file of the peer. Called by the poller, which fetches what it does not know yet.
func (e *endpoint) file(id uint64) (*peerFile, error) {
	if f := e.known(id); f != nil {
		return f, nil
	}
	for {
		f, err := e.fetch()
		if err != nil {
			return nil, err
		}
		if f.id == id {
			return f, nil
		}
	}
}

func (e *endpoint) known(id uint64) *peerFile {
	for _, f := range e.files {
		if f.id == id {
			return f
		}
	}
	return nil
}

// fetch takes the next file off the socket.
func (e *endpoint) fetch() (*peerFile, error) {
	var b [parcelBytes + 1]byte
	n, fds, err := recvParcel(e.sock, b[:])
	defer func() { closeAll(fds) }()
	if err != nil || n == 0 {
		return nil, &errs.ProtocolError{Field: "file", Reason: fmt.Sprintf("a record names a file that was not sent (%v)", err)}
	}
	le := binary.LittleEndian
	id, size := le.Uint64(b[8:]), le.Uint64(b[16:])
	if n != parcelBytes || len(fds) != 1 || le.Uint64(b[:]) != parcelMagic || e.known(id) != nil || len(e.files) >= mostFiles {
		return nil, &errs.ProtocolError{Field: "file", Reason: fmt.Sprintf("%d bytes with %d descriptors are no file", n, len(fds))}
	}
	mem, err := shm.Map(fds[0], int64(size))
	if err != nil {
		return nil, foul(err)
	}
	f := &peerFile{id: id, mem: mem, all: mem.Bytes()}
	f.uses.Store(1)
	e.files = append(e.files, f)
	return f, nil
}

// forget lets go of a file that the peer gives up.
func (e *endpoint) forget(id uint64) {
	for i, f := range e.files {
		if f.id == id {
			e.files = append(e.files[:i], e.files[i+1:]...)
			f.drop()
			return
		}
	}
}

// sendParcel sends without blocking; false when the socket takes nothing.
func sendParcel(sock int, b []byte, fds ...int) bool {
	for {
		err := unix.Sendmsg(sock, b, unix.UnixRights(fds...), nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		if err != unix.EINTR {
			return err == nil
		}
	}
}

// recvParcel receives without blocking. The descriptors are the caller's.
func recvParcel(sock int, b []byte) (n int, fds []int, err error) {
	var oob [128]byte
	for {
		k, on, flags, _, err := unix.Recvmsg(sock, b, oob[:], unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return 0, nil, err
		}
		fds = rightsOf(oob[:on])
		if flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
			closeAll(fds)
			return 0, nil, &errs.ProtocolError{Field: "message", Reason: "it is longer than any"}
		}
		return k, fds, nil
	}
}

func rightsOf(oob []byte) (fds []int) {
	list, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for i := range list {
		if more, err := unix.ParseUnixRights(&list[i]); err == nil {
			fds = append(fds, more...)
		}
	}
	return fds
}
