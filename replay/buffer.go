package replay

import (
	"context"
	"slices"
	"sync"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/tensor"
)

// Buffer holds the last rows that a collector has made, in a ring of memory. Row number n lies in place n modulo the
// capacity. Any goroutine may call it.
type Buffer struct {
	layout   Layout
	rowBytes int
	capacity uint64
	memory   []byte

	mu      sync.Mutex
	written uint64 // rows, ever
	picking int    // snapshots in use
	changed chan struct{}
}

// NewBuffer makes a buffer for capacity rows.
func NewBuffer(l Layout, capacity int) (*Buffer, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	if capacity < 1 || uint64(capacity) > maxRows {
		return nil, errs.Invalid("buffer: capacity: out of range (got %d, want 1 to %d rows): give how many rows to keep", capacity, uint64(maxRows))
	}
	if l.RowBytes() > int64(^uint(0)>>1)/int64(capacity) {
		return nil, errs.Invalid("buffer: capacity: %d rows of %d bytes are larger than any memory: keep fewer rows", capacity, l.RowBytes())
	}
	l.Fields = slices.Clone(l.Fields)
	b := &Buffer{layout: l, rowBytes: int(l.RowBytes()), capacity: uint64(capacity), changed: make(chan struct{})}
	b.memory = make([]byte, b.rowBytes*capacity)
	return b, nil
}

// Capacity is how many rows the buffer keeps.
func (b *Buffer) Capacity() int { return int(b.capacity) }

// Written is how many rows were ever added.
func (b *Buffer) Written() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.written
}

// Held is how many rows the buffer holds.
func (b *Buffer) Held() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return int(b.held())
}

// held is Held. Under mu.
func (b *Buffer) held() uint64 { return min(b.written, b.capacity) }

// Add adds whole rows, given by their bytes: all of them or none. A batch has all rows of an Add or none. Where they
// would replace rows that a batch may pick at the moment, Add waits until those are packed. An error that wraps
// ctx.Err() says that it gave up.
func (b *Buffer) Add(ctx context.Context, rows []byte) error {
	n := uint64(len(rows) / b.rowBytes)
	if len(rows)%b.rowBytes != 0 || n > b.capacity {
		return errs.Invalid("add: rows: not whole rows that fit (got %d bytes, want a multiple of %d, at most %d rows): add them in parts", len(rows), b.rowBytes, b.capacity)
	}
	for {
		changed := b.add(rows, n)
		if changed == nil {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return errs.Late("add: a batch is being packed from the rows that these would replace: try again", context.Cause(ctx))
		}
	}
}

// add adds n rows, or returns what to wait for.
func (b *Buffer) add(rows []byte, n uint64) (changed <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.picking > 0 && b.written+n > b.capacity {
		return b.changed
	}
	at := b.written % b.capacity
	first := min(n, b.capacity-at)
	copy(b.memory[int(at)*b.rowBytes:], rows[:int(first)*b.rowBytes])
	copy(b.memory, rows[int(first)*b.rowBytes:])
	b.written += n
	b.wake()
	return nil
}

// AddTensor is Add for a matrix of rows in memory of the host.
func (b *Buffer) AddTensor(ctx context.Context, rows *tensor.Tensor) error {
	if rows.DType() != b.layout.DType || rows.Shape().Rank() != 2 || rows.Dims()[1] != b.layout.Width() {
		return errs.Invalid("add: rows: they do not fit the buffer (got %v, want rows of %d %v): give a matrix of whole rows", *rows, b.layout.Width(), b.layout.DType)
	}
	if err := rows.CheckHost(); err != nil {
		return err
	}
	return b.Add(ctx, rows.Bytes())
}

// wake wakes those that wait. Under mu.
func (b *Buffer) wake() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// snapshot is what a batch picks from. Its rows stay as they are until release.
type snapshot struct {
	b             *Buffer
	written, held uint64
}

// snapshot waits until so many rows were written, and at least one.
func (b *Buffer) snapshot(ctx context.Context, least uint64) (snapshot, error) {
	for {
		s, changed := b.take(least)
		if changed == nil {
			return s, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return snapshot{}, context.Cause(ctx)
		}
	}
}

// take takes a snapshot, or returns what to wait for.
func (b *Buffer) take(least uint64) (s snapshot, changed <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.written < max(least, 1) {
		return s, b.changed
	}
	b.picking++
	return snapshot{b, b.written, b.held()}, nil
}

// release lets Add replace the rows.
func (s *snapshot) release() {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	s.b.picking--
	if s.b.picking == 0 {
		s.b.wake()
	}
}
