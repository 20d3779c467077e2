package refit

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/tensor"
)

// Share is what one process has of the model, and its moves.
type Share struct {
	Destination bool   `json:"destination"` // it receives; otherwise it sends
	Bytes       int64  `json:"bytes"`
	Moves       []Move `json:"moves"`
	Moved       int64  `json:"moved"` // bytes of all moves

	tensors []held
	memory  []byte
}

// held is a tensor of a share.
type held struct {
	parameter int // number of the parameter in the whole model
	dim       int
	first     int64 // of the elements along dim
	shape     tensor.Shape
	at        int64 // where it begins in the memory of the share
}

// Move is a box that goes from a source to a destination.
type Move struct {
	ID        uint64       `json:"id"`
	Peer      stepvan.Rank `json:"peer"` // of the cluster
	Label     string       `json:"label"`
	Parameter int          `json:"parameter"` // its number in the whole model
	Global    [2]int64     `json:"global"`    // row and column of the first element in the whole parameter
	Extent    []int64      `json:"extent"`
	Mine      Side         `json:"mine"` // where the box lies in this process
	Theirs    Side         `json:"theirs"`
}

// Side is where a box lies in the memory of a share.
type Side struct {
	At      int64   `json:"at"`      // of the first element, in bytes
	Strides []int64 `json:"strides"` // in elements
}

// alignBytes is what tensors begin at multiples of, as allocators have it.
const alignBytes = 64

// Share returns the share of a process: of source or destination number rank.
func (s *Spec) Share(destination bool, rank int) (*Share, error) {
	own, err := s.share(destination, rank)
	if err != nil {
		return nil, err
	}
	plan, err := s.plan(destination, rank)
	if err != nil {
		return nil, err
	}
	names, ops := plan.Sources, &plan.Sends
	if destination {
		names, ops = plan.Destinations, &plan.Recvs
	}
	parameters := s.parameters()
	number := map[string]int{}
	for i := range parameters {
		number[parameters[i].name] = i
	}
	others := map[int]*Share{}
	for i := range ops.Len() {
		op := ops.At(i)
		other := int(op.Peer)
		if !destination {
			other -= s.From.Ranks()
		}
		if s.Pair && other != 0 {
			continue
		}
		if others[other] == nil {
			if others[other], err = s.share(!destination, other); err != nil {
				return nil, err
			}
		}
		name := names[op.Tensor].Resolved
		mine, theirs := own.find(number[name]), others[other].find(number[name])
		if mine == nil || theirs == nil {
			return nil, errs.Invalid("the plan moves %q, which one of the sides does not have", name)
		}
		box := op.Box(!destination)
		m := Move{ID: op.Task, Peer: s.clusterRank(!destination, other), Label: name, Parameter: number[name], Extent: slices.Clone(op.Extent[:op.Rank])}
		at, far := box.Src, box.Dst
		if destination {
			at, far = far, at
		}
		m.Mine, m.Theirs, m.Global = mine.side(at, op.Rank), theirs.side(far, op.Rank), mine.global(at)
		own.Moves = append(own.Moves, m)
		own.Moved += bytesOf(m.Extent)
	}
	return own, nil
}

// clusterRank is the rank of a source or destination in the cluster of the measurement.
func (s *Spec) clusterRank(destination bool, rank int) stepvan.Rank {
	if destination {
		rank += s.Sources()
	}
	return stepvan.Rank(rank)
}

func bytesOf(extent []int64) int64 {
	n := int64(elementBytes)
	for _, e := range extent {
		n *= e
	}
	return n
}

// share lists the tensors of a rank.
func (s *Spec) share(destination bool, rank int) (*Share, error) {
	l := s.From
	if destination {
		l = s.To
	}
	if rank < 0 || rank >= l.Ranks() {
		return nil, errs.Invalid("rank is out of range (got %d, want less than %d)", rank, l.Ranks())
	}
	own := &Share{Destination: destination}
	for i, p := range s.parameters() {
		first, shape, ok := p.local(l, rank, s.experts())
		if !ok {
			continue
		}
		own.tensors = append(own.tensors, held{i, p.dim, first, shape, own.Bytes})
		n := bytesOf(shape.Dims())
		own.Bytes += (n + alignBytes - 1) / alignBytes * alignBytes
	}
	return own, nil
}

func (s *Share) find(parameter int) *held {
	i, ok := slices.BinarySearchFunc(s.tensors, parameter, func(h held, p int) int { return h.parameter - p })
	if !ok {
		return nil
	}
	return &s.tensors[i]
}

// side is where a box that begins at some element lies.
func (h *held) side(at [tensor.MaxRank]int64, rank int) (s Side) {
	s.Strides = make([]int64, rank)
	step := int64(1)
	dims := h.shape.Dims()
	for d := rank - 1; d >= 0; d-- {
		s.Strides[d] = step
		s.At += at[d] * step
		step *= dims[d]
	}
	s.At = h.at + s.At*elementBytes
	return s
}

// global is the row and the column that an element of the tensor has in the whole parameter. A vector is one row.
func (h *held) global(at [tensor.MaxRank]int64) (g [2]int64) {
	at[h.dim] += h.first
	if h.shape.Rank() == 1 {
		return [2]int64{0, at[0]}
	}
	return [2]int64{at[0], at[1]}
}

// Use gives the share its memory, which has Bytes bytes or more.
func (s *Share) Use(memory []byte) { s.memory = memory[:s.Bytes] }

// Memory is what Use has given.
func (s *Share) Memory() []byte { return s.memory }

// Fill writes the elements of a version.
func (s *Share) Fill(version uint64) {
	for i := range s.tensors {
		h := &s.tensors[i]
		b := block{h.parameter, h.side([tensor.MaxRank]int64{}, h.shape.Rank()), h.shape.Dims(), h.global([tensor.MaxRank]int64{})}
		b.eachRow(s.memory, version, func(row []byte, value uint16) {
			for k := 0; k < len(row); k += elementBytes {
				binary.LittleEndian.PutUint16(row[k:], value)
				value += step
			}
		})
	}
}

// Check compares what the moves bring to a destination with the elements of a version.
func (s *Share) Check(version uint64) (failed error) {
	if !s.Destination {
		return nil
	}
	for i := range s.Moves {
		m := &s.Moves[i]
		b := block{m.Parameter, m.Mine, m.Extent, m.Global}
		b.eachRow(s.memory, version, func(row []byte, value uint16) {
			for k := 0; k < len(row) && failed == nil; k += elementBytes {
				if got := binary.LittleEndian.Uint16(row[k:]); got != value {
					failed = fmt.Errorf("an element of %s is wrong: it comes from peer %d (got %#x, want %#x)", m.Label, m.Peer, got, value)
				}
				value += step
			}
		})
		if failed != nil {
			return failed
		}
	}
	return nil
}

// block is a box of a parameter in the memory of a share.
type block struct {
	parameter int
	side      Side
	extent    []int64
	global    [2]int64 // its first element in the whole parameter
}

// Elements of a row, of a column and of parameters differ by these numbers, which are odd.
const (
	step          = 3
	stepRow       = 40503
	stepParameter = 7919
	stepVersion   = 257
)

// eachRow calls f with the bytes of each row of a block, and the value of its first element.
func (b *block) eachRow(memory []byte, version uint64, f func(row []byte, value uint16)) {
	rows, last := int64(1), len(b.extent)-1
	if last > 0 {
		rows = b.extent[0]
	}
	for r := range rows {
		at := b.side.At
		if last > 0 {
			at += r * b.side.Strides[0] * elementBytes
		}
		value := uint64(b.parameter)*stepParameter + version*stepVersion + uint64(b.global[0]+r)*stepRow + uint64(b.global[1])*step
		f(memory[at:][:b.extent[last]*elementBytes], uint16(value))
	}
}

// Rows is how a box is copied: Count rows of Bytes, which begin so many bytes apart in the memory of each side.
type Rows struct {
	Count, Bytes int64
	To, From     int64 // bytes from one row to the next, at the destination and at the source
}

// Rows of the move, seen from its destination. Rows that touch on both sides are one.
func (m *Move) Rows() Rows {
	last := len(m.Extent) - 1
	r := Rows{Count: 1, Bytes: m.Extent[last] * elementBytes}
	if last > 0 {
		r.Count, r.To, r.From = m.Extent[0], m.Mine.Strides[0]*elementBytes, m.Theirs.Strides[0]*elementBytes
	}
	if r.To == r.Bytes && r.From == r.Bytes {
		return Rows{Count: 1, Bytes: r.Count * r.Bytes}
	}
	return r
}

// Bytes of the move.
func (m *Move) Bytes() int64 { return bytesOf(m.Extent) }
