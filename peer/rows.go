package peer

import (
	"fmt"
	"unsafe"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/prefetch"
	"github.com/stepvan/stepvan/tensor"
)

// rowMaker picks rows of a matrix.
type rowMaker struct {
	matrix tensor.Strided
	first  unsafe.Pointer // its first element
	rows   []int64        // which ones
	size   int64          // bytes of a row
	stride int64          // bytes from one row to the next
}

// PutRows is [Peer.Put] for rows of a matrix, which are picked on their way: row i of the part is row rows[i] of the
// matrix. The elements of a row must be contiguous, and rows is not looked at after the call. [Library.PutMade] says
// where they are picked.
func (l Library) PutRows(matrix tensor.Strided, rows []int64, token Token, at []int64, note []byte) (Handle, error) {
	if err := checkSource(&matrix); err != nil {
		return Handle{}, fmt.Errorf("put rows: %w", err)
	}
	dims, strides := matrix.Dims(), matrix.Strides()
	if len(dims) != 2 || dims[1] > 1 && strides[1] != 1 {
		return Handle{}, errs.Invalid("put rows: matrix: its rows are not contiguous (got %v): give a matrix of whole rows", matrix)
	}
	for i, row := range rows {
		if row < 0 || row >= dims[0] {
			return Handle{}, errs.Invalid("put rows: rows: number %d is out of range (got %d, want 0 to %d): pick rows of the matrix", i, row, dims[0]-1)
		}
	}
	if err := matrix.Retain(); err != nil {
		return Handle{}, fmt.Errorf("put rows: %w", err)
	}
	size := int64(matrix.DType().Size())
	m := &rowMaker{matrix, address(&matrix), append([]int64(nil), rows...), dims[1] * size, strides[0] * size}
	h, err := l.PutMade(m, matrix.DType(), []int64{int64(len(rows)), dims[1]}, token, at, note)
	if err != nil {
		matrix.Release()
	}
	return h, err
}

// row is row i of what is made.
func (m *rowMaker) row(i int64) []byte {
	return unsafe.Slice((*byte)(unsafe.Add(m.first, m.rows[i]*m.stride)), m.size)
}

const (
	// rowsAhead is how many rows are fetched into the cache before they are copied: each row is in another place.
	rowsAhead = 8
	// rowHead is how much of a row is fetched. The processor itself fetches what follows.
	rowHead = 512
	// longRow is how long rows are that a socket takes from where they lie.
	longRow = 4 << 10
)

// Make implements Maker: at may be amid a row.
func (m *rowMaker) Make(to []byte, at int64) {
	head := uintptr(min(m.size, rowHead))
	for i, skip := at/m.size, at%m.size; len(to) > 0; i, skip = i+1, 0 {
		if next := i + rowsAhead; next < int64(len(m.rows)) {
			prefetch.Write(unsafe.Add(m.first, m.rows[next]*m.stride), head)
		}
		to = to[copy(to, m.row(i)[skip:]):]
	}
}

// AppendSources implements Maker.
func (m *rowMaker) AppendSources(list [][]byte, at, n int64) [][]byte {
	if m.size < longRow {
		return list
	}
	for i, skip := at/m.size, at%m.size; n > 0; i, skip = i+1, 0 {
		b := m.row(i)[skip:]
		b = b[:min(n, int64(len(b)))]
		list, n = append(list, b), n-int64(len(b))
	}
	return list
}

// Free implements Maker.
func (m *rowMaker) Free() { m.matrix.Release() }
