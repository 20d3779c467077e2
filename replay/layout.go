package replay

import (
	"fmt"
	"math"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/tensor"
)

// Field is some columns of a row that belong together, such as an observation.
type Field struct {
	Name  string
	Width int64 // columns; 1 or more
}

// Layout is what a row holds: its fields, one after the other. Learner and collectors have the same.
type Layout struct {
	DType  tensor.DType // of every column
	Fields []Field
}

// Width is the number of columns of a row.
func (l *Layout) Width() (n int64) {
	for _, f := range l.Fields {
		n += f.Width
	}
	return n
}

// RowBytes is the size of a row in bytes.
func (l *Layout) RowBytes() int64 { return l.Width() * int64(l.DType.Size()) }

// maxWidth bounds the columns of a row, and maxRows the rows of a batch and of a buffer.
const (
	maxWidth = math.MaxInt32
	maxRows  = math.MaxUint32
)

// check refuses a layout that has no rows.
func (l *Layout) check() error {
	if !l.DType.Valid() {
		return errs.Invalid("layout: dtype: not a type of elements (got %d): use one of package tensor", l.DType)
	}
	if len(l.Fields) == 0 {
		return errs.Invalid("layout: fields: a row has no field: give at least one")
	}
	seen := map[string]bool{}
	total := int64(0)
	for _, f := range l.Fields {
		if f.Width < 1 || f.Width > maxWidth {
			return errs.Invalid("layout: field %q: its width is out of range (got %d, want 1 to %d): give its columns", f.Name, f.Width, int64(maxWidth))
		}
		if seen[f.Name] {
			return errs.Invalid("layout: field %q: it is there twice: give each field a name of its own", f.Name)
		}
		seen[f.Name] = true
		total += f.Width
	}
	if total > maxWidth {
		return errs.Invalid("layout: fields: a row is too wide (got %d, want at most %d columns): use fewer columns", total, int64(maxWidth))
	}
	return nil
}

// Batch is the rows that were sampled for a tick: a matrix with the columns of its layout. Its memory is the ring's.
type Batch struct {
	Tick    Tick
	Seed    uint64
	Written uint64        // rows that the collectors had written to their buffers, when they picked
	Held    uint64        // rows that these buffers held
	Rows    tensor.Tensor // in memory of the host, or of the accelerator of the ring
	layout  *Layout
}

// Field returns the columns of a field, as a matrix with one row for each row of the batch.
func (b *Batch) Field(name string) (tensor.Strided, error) {
	at := int64(0)
	for _, f := range b.layout.Fields {
		if f.Name == name {
			return b.Rows.Strided().Narrow(1, at, f.Width)
		}
		at += f.Width
	}
	return tensor.Strided{}, errs.Invalid("batch: field %q: the rows have no such field: use one of %s", name, fmt.Sprint(b.layout.names()))
}

func (l *Layout) names() (names []string) {
	for _, f := range l.Fields {
		names = append(names, f.Name)
	}
	return names
}
