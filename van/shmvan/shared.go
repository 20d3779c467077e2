package shmvan

import (
	"encoding/binary"

	"github.com/stepvan/stepvan"
)

// errands are the files that the peer is to forget, and has not been told of. Guarded by endpoint.mu.
type errands struct {
	files []uint64
	end   uint64 // of the last record that told; the next comes when that was read, so they never fill the ring
}

func (l *errands) waiting() bool { return len(l.files) > 0 }

// runErrands tells as much as it can. mu is held.
func (e *endpoint) sendDropped() {
	l := &e.errands
	for l.waiting() && !e.stream.active {
		if e.out.seen < l.end && (e.out.look() != nil || e.out.seen < l.end) {
			return
		}
		rec, err := e.out.begin(align(recBody + 8))
		if rec == nil || err != nil {
			return
		}
		binary.LittleEndian.PutUint64(rec[recBody:], l.files[0])
		l.files = append(l.files[:0], l.files[1:]...)
		e.out.publish(len(rec), kindForget, wordTell)
		l.end = e.out.pos
	}
}

// withhold tells the peer to let go of a file that goes. Any goroutine.
func (e *endpoint) stopSharing(file uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, id := range e.sharedFiles {
		if id != file {
			continue
		}
		e.sharedFiles = append(e.sharedFiles[:i], e.sharedFiles[i+1:]...)
		if e.usable() == nil {
			e.errands.files = append(e.errands.files, file)
			e.sendDropped()
			e.updateDue()
			e.wakeIfAsleep()
		}
		return
	}
}

// control takes a record about files. Poller only.
func (e *endpoint) control(r *record) error {
	if len(r.bytes) < recBody+8 {
		return &stepvan.ProtocolError{Field: "record", Reason: "too short"}
	}
	e.forget(binary.LittleEndian.Uint64(r.bytes[recBody:]))
	return nil
}
