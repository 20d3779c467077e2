package limit

import (
	"math/bits"
	"unsafe"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/prefetch"
)

// Rows says that an answerer picks the bytes of its answer at random, as rows from a buffer. The zero value says that
// it does not.
type Rows struct {
	Bytes  int64 // of a row
	Buffer int64 // bytes that rows are picked from
}

// check refuses what a mistaken side may ask for.
func (r *Rows) check() error {
	if *r == (Rows{}) {
		return nil
	}
	if r.Bytes < 1 || r.Buffer < r.Bytes {
		return errs.Invalid("a limit with rows of %d bytes from %d", r.Bytes, r.Buffer)
	}
	return nil
}

// picker picks rows. One goroutine at a time.
type picker struct {
	buffer []byte
	row    int
	state  uint64
}

// newPicker returns nil when there is nothing to pick.
func newPicker(r *Rows) *picker {
	if r.Bytes == 0 {
		return nil
	}
	return &picker{buffer: written(r.Buffer), row: int(r.Bytes)}
}

const (
	rowsAhead = 8   // that are fetched into the cache before they are copied
	rowHead   = 512 // bytes of a row that are fetched. The processor itself fetches what follows
)

// next is where the next row begins.
func (p *picker) next() int {
	p.state += 0x9E3779B97F4A7C15
	x := p.state
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	row, _ := bits.Mul64(x^x>>31, uint64(len(p.buffer)/p.row))
	at := int(row) * p.row
	prefetch.Write(unsafe.Pointer(&p.buffer[at]), uintptr(min(p.row, rowHead)))
	return at
}

// fill fills to with rows. Budget: 0 allocations.
func (p *picker) fill(to []byte) {
	var ahead [rowsAhead]int
	for i := range ahead {
		ahead[i] = p.next()
	}
	for k := 0; len(to) > 0; k = (k + 1) % rowsAhead {
		at := ahead[k]
		ahead[k] = p.next()
		n := copy(to, p.buffer[at:at+p.row])
		to = to[n:]
	}
}

// picked is how much is picked before it is sent. It fits into the cache of a core.
const picked = 512 << 10

// pickedSide is a side over a socket that picks what it sends.
type pickedSide struct {
	side
	picker *picker
	write  func(b []byte) error
	whole  int64
	part   []byte
}

func (p *pickedSide) send() error {
	for left := p.whole; left > 0; {
		var b []byte
		if p.picker.row >= picked/8 { // long rows go out from where they lie
			at := p.picker.next()
			b = p.picker.buffer[at : at+p.picker.row]
		} else {
			b = p.part[:min(left, int64(len(p.part)))]
			p.picker.fill(b)
		}
		b = b[:min(left, int64(len(b)))]
		if err := p.write(b); err != nil {
			return err
		}
		left -= int64(len(b))
	}
	return nil
}

// picking makes a side pick what it sends, if it is to.
func (s *Spec) picking(one side) side {
	p := newPicker(&s.Rows)
	if p == nil {
		return one
	}
	out := &pickedSide{side: one, picker: p, whole: s.Pull, part: make([]byte, max(picked/p.row, 1)*p.row)}
	switch x := one.(type) {
	case *rawSocket:
		out.write = x.sendAll
	case *parked:
		out.write = func(b []byte) error {
			_, err := x.Write(b)
			return gone("write", err)
		}
	}
	return out
}
