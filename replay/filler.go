package replay

import (
	"sync/atomic"
	"unsafe"

	"github.com/stepvan/stepvan/internal/bulk"
	"github.com/stepvan/stepvan/internal/prefetch"
)

// filler makes the rows of a share where they are wanted, from a snapshot. It is a [peer.Maker] of one Put after the
// other.
type filler struct {
	snapshot snapshot
	seed     uint64
	first    uint64 // row of the batch that the Put begins with
	bytes    int64  // of the share
	users    atomic.Int32
}

// open has the filler make rows of a snapshot, which it releases once nobody uses it.
func (f *filler) open(s snapshot, a *ask) {
	f.snapshot, f.seed, f.bytes = s, a.seed, int64(a.rows)*int64(s.b.rowBytes)
	f.users.Store(1)
}

// isFree reports whether nobody uses the filler.
func (f *filler) isFree() bool { return f.users.Load() == 0 }

// Free implements [peer.Maker], and ends the use by the collector too.
func (f *filler) Free() {
	if f.users.Add(-1) == 0 {
		f.snapshot.release()
	}
}

// Make implements [peer.Maker]: at may be amid a row. Budget: 0 allocations.
func (f *filler) Make(to []byte, at int64) {
	size := int64(f.snapshot.b.rowBytes)
	row := f.first + uint64(at/size)
	if skip := at % size; skip > 0 {
		n := copy(to, f.snapshot.row(f.seed, row)[skip:])
		to, row = to[n:], row+1
	}
	whole := int64(len(to)) / size * size
	f.snapshot.gather(to[:whole:whole], f.seed, row, f.bytes)
	if rest := to[whole:]; len(rest) > 0 {
		copy(rest, f.snapshot.row(f.seed, row+uint64(whole/size)))
	}
}

// longRow is how long rows are that a socket takes from where they lie. Copies of shorter ones cost less than their
// places in a list.
const longRow = 4 << 10

// AppendSources implements [peer.Maker].
func (f *filler) AppendSources(list [][]byte, at, n int64) [][]byte {
	size := int64(f.snapshot.b.rowBytes)
	if size < longRow {
		return list
	}
	for row, skip := f.first+uint64(at/size), at%size; n > 0; row, skip = row+1, 0 {
		b := f.snapshot.row(f.seed, row)[skip:]
		b = b[:min(n, int64(len(b)))]
		list, n = append(list, b), n-int64(len(b))
	}
	return list
}

// row is row i of the batch with a seed.
func (s *snapshot) row(seed, i uint64) []byte {
	at := int(Pick(seed, i, s.held)) * s.b.rowBytes
	return s.b.memory[at : at+s.b.rowBytes : at+s.b.rowBytes]
}

const (
	// lookahead is how many rows are fetched into the cache before they are copied: each row is in another place.
	lookahead = 8
	// mostFetched is how much of a row is fetched. The processor itself fetches what follows.
	mostFetched = 512
)

// gather copies the rows of a batch from first on, as many as fit to. The whole share has so many bytes: large ones
// pass the caches. Budget: 0 allocations.
func (s *snapshot) gather(to []byte, seed, first uint64, whole int64) {
	size := s.b.rowBytes
	if size >= bulkRow {
		for ; len(to) > 0; to, first = to[size:], first+1 {
			bulk.CopyPart(to[:size], s.row(seed, first), whole)
		}
		return
	}
	var ahead [lookahead]int
	fetched := uintptr(min(size, mostFetched))
	pick := func(i uint64) int {
		at := int(Pick(seed, i, s.held)) * size
		prefetch.Write(unsafe.Pointer(&s.b.memory[at]), fetched)
		return at
	}
	for i := range ahead {
		ahead[i] = pick(first + uint64(i))
	}
	for i, k := 0, 0; i < len(to); i, k = i+size, (k+1)%lookahead {
		at := ahead[k]
		ahead[k] = pick(first + lookahead)
		copy(to[i:i+size:i+size], s.b.memory[at:])
		first++
	}
}

// bulkRow is how long rows are that are copied one by one, without those that follow being fetched.
const bulkRow = 32 << 10
