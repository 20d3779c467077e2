package shmvan

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
)

// sharedFiles are the files of this process that the peer has. Guarded by connection.mu.
type sharedFiles struct {
	ids     []uint64
	dropped []uint64 // the peer is to unmap them, and was not told
	end     uint64   // of the last record that told; the next one waits until the peer has read it: they never fill the ring
}

// add makes sure that the peer has the file. stepvan.ErrWouldBlock: not at this moment.
func (l *sharedFiles) add(sock int, file uint64, fd int, size int) error {
	if slices.Contains(l.ids, file) {
		return nil
	}
	if len(l.ids) >= maxFiles {
		return errManyFiles
	}
	var b [fileMessageBytes]byte
	binary.LittleEndian.PutUint64(b[:], fileMagic)
	binary.LittleEndian.PutUint64(b[8:], file)
	binary.LittleEndian.PutUint64(b[16:], uint64(size))
	if err := sendDescriptors(sock, b[:], fd); err != nil {
		return err
	}
	l.ids = append(l.ids, file)
	return nil
}

var (
	errManyFiles = fmt.Errorf("the peer has %d files of this process, and takes no more: %w", maxFiles, errs.ErrNoGrant)
	errNoFile    = fmt.Errorf("the memory lies in no file that can be shared: %w", stepvan.ErrNotSupported)
)

// locate finds memory in a file that the peer has, or gives the file to the peer. mu is held.
// stepvan.ErrWouldBlock: the file cannot be given at this moment.
func (s *sender) locate(p []byte) (segment, error) {
	files := s.conn.van.opt.Files
	if files == nil {
		return segment{}, errNoFile
	}
	at, ok := files.Locate(p)
	if !ok {
		return segment{}, errNoFile
	}
	if err := s.shared.add(s.conn.sock, at.File, at.FD, len(at.Memory)); err != nil {
		return segment{}, err
	}
	return segment{at.File, uint64(at.Offset), uint64(len(p))}, nil
}

// stopSharing tells the peer to unmap a file that this process frees. Any goroutine.
func (s *sender) stopSharing(file uint64) {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	l := &s.shared
	i := slices.Index(l.ids, file)
	if i < 0 {
		return
	}
	l.ids = slices.Delete(l.ids, i, i+1)
	if s.conn.usable() == nil {
		l.dropped = append(l.dropped, file)
		s.sendDropped()
		s.updateDue()
		s.conn.wakeIfAsleep()
	}
}

// sendDropped tells the peer of as many dropped files as it can. mu is held.
func (s *sender) sendDropped() {
	l := &s.shared
	for len(l.dropped) > 0 && !s.stream.active {
		if s.out.consumed < l.end && (s.out.readConsumed() != nil || s.out.consumed < l.end) {
			return
		}
		rec, err := s.out.begin(align(recBody + 8))
		if rec == nil || err != nil {
			return
		}
		binary.LittleEndian.PutUint64(rec[recBody:], l.dropped[0])
		l.dropped = slices.Delete(l.dropped, 0, 1)
		s.out.publish(len(rec), kindForget, wordWake)
		l.end = s.out.pos
	}
}
