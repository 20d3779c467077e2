package peer

import (
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/strided"
	"github.com/stepvan/stepvan/tensor"
)

// Maker makes the elements of a Put where they are wanted, in place of memory that has them. Several goroutines call it
// at once, for different bytes. It must not call this package.
type Maker interface {
	// Make writes the bytes from at on, as many as fit into to.
	Make(to []byte, at int64)
	// AppendSources appends the memory that has the n bytes from at on, in order. It appends nothing where the runs are
	// so short that Make is better. The memory stays as it is until Free.
	AppendSources(list [][]byte, at, n int64) [][]byte
	// Free says that the maker is not in use any more: before the handle completes without an error, and otherwise
	// later. It must not block.
	Free()
}

// made is what the maker of a Put makes. The zero value has no maker.
type made struct {
	maker Maker
	form  form
}

// PutMade is [Peer.Put] for elements that a maker makes, of a type and with these extents. Where this process sees the
// window, the maker writes into it: the calling goroutine works on that, and several movers of a node help with large
// parts. Elsewhere it makes a part while the one before travels. The part of the window must be contiguous. When
// PutMade returns an error, the maker is not freed.
func (l Library) PutMade(m Maker, t tensor.DType, dims []int64, token Token, at []int64, note []byte) (Handle, error) {
	const op = "put"
	shape, err := tensor.MakeShape(dims...)
	if err == nil && len(note) > MaxMail {
		return Handle{}, errs.Invalid("put: note: too long (got %d, want at most %d bytes): put it into the elements", len(note), MaxMail)
	}
	if err != nil || !t.Valid() {
		return Handle{}, errs.Invalid("%s: made elements: they do not make a tensor (got %v of %v): give a type and extents", op, dims, t)
	}
	f := form{dtype: t, rank: uint8(shape.Rank())}
	copy(f.dims[:], dims)
	return l.p.windows.access(op, tensor.Strided{}, made{m, f.contiguous()}, token, at, note, true)
}

// fits refuses a part of a window that is not contiguous. w is the walk to the part.
func (m *made) fits(w *strided.Walk) error {
	if m.maker != nil && w.Runs() > 1 {
		return errs.Invalid("put: made elements: their part of the window is not contiguous (got %d runs): give whole rows", w.Runs())
	}
	return nil
}
