package match

import (
	"encoding/binary"
	"math"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/text"
	"github.com/stepvan/stepvan/layout"
	"github.com/stepvan/stepvan/tensor"
)

// Tensor is a tensor that a peer sends or receives, or the part of it that the peer has.
type Tensor struct {
	Name  string
	DType tensor.DType
	Part  layout.Part
}

// MaxName is the longest name of a tensor in bytes.
const MaxName = 1024

// State is what one peer sends and receives.
type State struct {
	Sends, Receives []Tensor
}

// version is the first byte of a description.
const version = 1

// Append appends the description of s to b, for other peers. Tensors with equal parts share their description, so that
// most take their name and three bytes.
func (s *State) Append(b []byte) ([]byte, error) {
	parts := map[string]uint64{}
	var table, tensors, one []byte
	for _, list := range [][]Tensor{s.Sends, s.Receives} {
		tensors = binary.AppendUvarint(tensors, uint64(len(list)))
		for i := range list {
			t := &list[i]
			if err := t.check(); err != nil {
				return b, err
			}
			one = t.Part.Append(one[:0])
			number, known := parts[string(one)]
			if !known {
				number = uint64(len(parts))
				parts[string(one)] = number
				table = append(table, one...)
			}
			tensors = binary.AppendUvarint(tensors, uint64(len(t.Name)))
			tensors = append(tensors, t.Name...)
			tensors = append(tensors, byte(t.DType))
			tensors = binary.AppendUvarint(tensors, number)
		}
	}
	b = append(b, version)
	b = binary.AppendUvarint(b, uint64(len(parts)))
	b = append(b, table...)
	return append(b, tensors...), nil
}

func (t *Tensor) check() error {
	if len(t.Name) == 0 || len(t.Name) > MaxName {
		return errs.Invalid("match: the name of a tensor has a wrong length (got %d bytes, want 1 to %d): %s", len(t.Name), MaxName, text.Cut(t.Name))
	}
	if !t.DType.Valid() {
		return errs.Invalid("match: %s: its type does not exist (got %d): give one of package tensor", text.Cut(t.Name), t.DType)
	}
	return nil
}

// state is a description that has been read. Tensors name their part by its number.
type state struct {
	parts []layout.Part
	codes []string // of the parts
	lists [2][]described
}

const (
	sending = iota
	receiving
)

// described is a tensor of a peer. The name lies in the description.
type described struct {
	name  []byte
	dtype tensor.DType
	part  int
}

// read reads what [State.Append] has written. It trusts nothing.
func read(b []byte) (s state, err error) {
	r := reader{rest: b, size: len(b)}
	if v := r.byte(); v != version {
		r.fail("it has version %d (want %d)", v, version)
	}
	for range r.number("parts", uint64(len(b))) {
		p, rest, err := layout.ReadPart(r.rest)
		if err != nil {
			return state{}, err
		}
		s.parts = append(s.parts, p)
		s.codes = append(s.codes, string(r.rest[:len(r.rest)-len(rest)]))
		r.rest = rest
	}
	for i := range s.lists {
		n := r.number("tensors", uint64(len(r.rest)/4)) // each takes four bytes at least
		s.lists[i] = make([]described, 0, n)
		for range n {
			d := described{name: r.name(), dtype: tensor.DType(r.byte())}
			d.part = int(r.number("part", math.MaxInt32))
			if r.err == nil && (!d.dtype.Valid() || d.part >= len(s.parts)) {
				r.fail("%s has type %d and part %d of %d", text.Cut(string(d.name)), d.dtype, d.part, len(s.parts))
			}
			if r.err != nil {
				return state{}, r.err
			}
			s.lists[i] = append(s.lists[i], d)
		}
	}
	if r.err == nil && len(r.rest) > 0 {
		r.fail("%d bytes are left behind it", len(r.rest))
	}
	return s, r.err
}

// reader takes numbers from bytes of a peer. After the first error it returns zeros.
type reader struct {
	rest []byte
	size int
	err  error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = errs.Protocol("description of tensors", r.size-len(r.rest), format, args...)
		r.rest = nil
	}
}

func (r *reader) byte() byte {
	if len(r.rest) == 0 {
		r.fail("it is cut off")
		return 0
	}
	b := r.rest[0]
	r.rest = r.rest[1:]
	return b
}

func (r *reader) number(what string, most uint64) uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 || v > most {
		r.fail("%s: cut off or out of range (got %d, want at most %d)", what, v, most)
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *reader) name() []byte {
	n := r.number("length of a name", MaxName)
	if n == 0 || n > uint64(len(r.rest)) {
		r.fail("a name of %d bytes", n)
		return nil
	}
	name := r.rest[:n]
	r.rest = r.rest[n:]
	return name
}
