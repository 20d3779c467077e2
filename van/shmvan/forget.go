package shmvan

import (
	"encoding/binary"

	"github.com/stepvan/stepvan"
)

// forgets lists the files that the peer must unmap and does not know of yet. Guarded by sendSide.mu.
type forgets struct {
	files []uint64
	end   uint64 // of the last such record; the next follows when the peer has read it, so they never fill the ring
}

func (l *forgets) waiting() bool { return len(l.files) > 0 }

// sendForgets sends a record for each file, while there is room. mu is held.
func (tx *sendSide) sendForgets() {
	l := &tx.forgets
	for l.waiting() && !tx.stream.active {
		if tx.out.seen < l.end && (tx.out.look() != nil || tx.out.seen < l.end) {
			return
		}
		rec, err := tx.out.begin(align(recBody + 8))
		if rec == nil || err != nil {
			return
		}
		binary.LittleEndian.PutUint64(rec[recBody:], l.files[0])
		l.files = append(l.files[:0], l.files[1:]...)
		tx.out.publish(len(rec), kindForget, wordTell)
		l.end = tx.out.pos
	}
}

// forgetFile tells the peer to unmap a file that the program frees. Any goroutine may call it.
func (tx *sendSide) forgetFile(file uint64) {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	for i, id := range tx.offered {
		if id != file {
			continue
		}
		tx.offered = append(tx.offered[:i], tx.offered[i+1:]...)
		if tx.e.usable() == nil {
			tx.forgets.files = append(tx.forgets.files, file)
			tx.sendForgets()
			tx.noteDue()
			tx.e.wakePeer()
		}
		return
	}
}

// takeForget takes a record about files. Only Poll calls it.
func (rx *receiveSide) takeForget(r *record) error {
	if len(r.bytes) < recBody+8 {
		return &stepvan.ProtocolError{Field: "record", Reason: "too short"}
	}
	rx.e.pm.forget(binary.LittleEndian.Uint64(r.bytes[recBody:]))
	return nil
}
