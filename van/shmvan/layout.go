package shmvan

import (
	"sync/atomic"

	"github.com/stepvan/stepvan/internal/shm"
)

// Each side of a connection has one file that it alone writes: control words, the ring of the
// records that it sends, and its grants. The other side maps it for reading.
const (
	offConsumed = 0                 // bytes of the peer's ring that this side is done with, since the beginning
	offDone     = 8                 // messages of the peer whose source memory this side has read
	offClosed   = 2 * shm.LineBytes // not 0: this side has closed the connection
	offReads    = 3 * shm.LineBytes // not 0: this side can read the other's memory with process_vm_readv
	ringStart   = 4096              // the ring; what comes behind it is in table.go
)

// Each van has one page that its peers map for reading.
const (
	offAsleep = 0                 // odd while the van is armed; each sleep has a number of its own
	offNonce  = 2 * shm.LineBytes // 16 bytes, to prove that a peer can read this process's memory
	pageBytes = 4096
)

// words are the control words of one side's file.
type words struct {
	consumed, done, closed, reads *atomic.Uint64
	ring                          []byte
}

func wordsOf(file []byte, ring int) words {
	return words{
		consumed: shm.Word64(file, offConsumed),
		done:     shm.Word64(file, offDone),
		closed:   shm.Word64(file, offClosed),
		reads:    shm.Word64(file, offReads),
		ring:     file[ringStart : ringStart+ring],
	}
}

// A record lies in whole cache lines. Its first word is written last: 0 means that there is nothing yet.
// The word behind a record is 0 before the record appears, so a consumer looks at one word only.
//
//	word   uint64  bytes of the record, kind, wake, 1 in the highest bit
//	head   uint32  bytes of wire header and meta
//	segs   uint32  segments, 24 bytes each
//	size   uint64  bytes of payload
//	header and meta
//	segments at the next multiple of 8: (file or 0, offset or address, length); or the payload itself
//
// A header with meta that is too long for one record follows a kindLong record, in kindChunk records of its own. The
// kindLong record's head says how long it is. Its segs is 1 when the payload is in granted memory. Otherwise the
// payload follows behind the header and meta, in kindChunk records too.
const (
	recHead  = 8
	recSegs  = 12
	recSize  = 16
	recBody  = 24
	segBytes = 24

	wordSize = 1<<32 - 1
	wordKind = 32
	wordWake = 1 << 40 // the producer waits for room: wake it when this has been consumed
	wordUsed = 1 << 63
)

// kind of a record
type kind uint8

const (
	kindSkip    kind = iota + 1 // nothing: the ring's end does not hold what comes next
	kindInline                  // the payload follows in the record
	kindWritten                 // the payload is in granted memory
	kindMapped                  // segments in the sender's files
	kindForeign                 // segments at addresses of the sender
	kindStream                  // the payload follows in kindChunk records
	kindLong                    // header, meta and payload follow in kindChunk records
	kindChunk                   // a part of the last kindStream or kindLong
	kindForget                  // a file of the sender goes
	kindEnd
)

// align rounds up to whole lines.
func align(n int) int { return (n + shm.LineBytes - 1) &^ (shm.LineBytes - 1) }
