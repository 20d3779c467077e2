package layout

import (
	"encoding/binary"
	"math"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/tensor"
)

// The first byte of each encoding. All numbers that follow are varints of encoding/binary.
const (
	codePart      = 0xd1
	codeLayout    = 0xd2
	codePartition = 0xd3
)

// Append appends the encoding of p to b. It has the shape of the whole and the spans of each dimension. Spans at equal
// distances take the room of one.
func (p *Part) Append(b []byte) []byte {
	b = append(b, codePart, byte(p.shape.Rank()))
	for _, n := range p.shape.Dims() {
		b = binary.AppendUvarint(b, uint64(n))
	}
	for d := range p.shape.Rank() {
		b = appendSpans(b, p.Spans(d))
	}
	return b
}

// run is some spans that follow each other at equal distances.
type run struct {
	gap, size int64 // from the end of the span before it
	jump      int64 // from the place where the part would continue
	count     int
}

func appendSpans(b []byte, list []Span) []byte {
	var runs []run
	var stop, local int64
	for _, s := range list {
		r := run{s.Start - stop, s.size(), s.Local - local, 1}
		stop, local = s.Stop, s.Local+s.size()
		if n := len(runs) - 1; n >= 0 && runs[n].gap == r.gap && runs[n].size == r.size && runs[n].jump == r.jump {
			runs[n].count++
			continue
		}
		runs = append(runs, r)
	}
	b = binary.AppendUvarint(b, uint64(len(runs)))
	for _, r := range runs {
		b = binary.AppendUvarint(b, uint64(r.count))
		b = binary.AppendUvarint(b, uint64(r.gap))
		b = binary.AppendUvarint(b, uint64(r.size))
		b = binary.AppendVarint(b, r.jump)
	}
	return b
}

// ReadPart reads what [Part.Append] has written at the beginning of b, and returns the rest. It trusts nothing: the
// error of bytes that make no part is a [stepvan.ProtocolError].
func ReadPart(b []byte) (Part, []byte, error) {
	r := reader{all: b, field: "part of a tensor"}
	r.code(codePart)
	shape := r.shape()
	var lists [tensor.MaxRank][]Span
	room := maxSpans
	for d := range shape.Rank() {
		lists[d], room = r.spans(shape.Dim(d), room)
	}
	if r.err != nil {
		return Part{}, nil, r.err
	}
	p, err := NewPart(shape, lists[:shape.Rank()]...)
	if err != nil {
		return Part{}, nil, errs.Protocol(r.field, 0, "%v", err)
	}
	return p, b[r.at:], nil
}

// spans reads the spans of a dimension of n elements. It returns how many more the part may have.
func (r *reader) spans(n int64, room int) ([]Span, int) {
	runs := r.number("runs of spans", 0, int64(min(room, r.left()/4)))
	var list []Span
	var stop, local int64
	for range runs {
		count := r.number("spans of a run", 1, int64(room))
		gap := r.number("gap", 0, n)
		size := r.number("length of a span", 1, max(n, 1))
		jump := r.signed(n)
		if r.err != nil {
			return nil, 0
		}
		room -= int(count)
		for range count {
			if stop > n-gap-size {
				r.fail("a span ends behind its dimension of %d elements", n)
				return nil, 0
			}
			if local += jump; local < 0 || local > n-size {
				r.fail("a span lies outside of the part (got offset %d)", local)
				return nil, 0
			}
			list = append(list, Span{stop + gap, stop + gap + size, local})
			stop += gap + size
			local += size
		}
	}
	return list, room
}

// Append appends the encoding of l to b. It refuses a layout that [Layout.Check] refuses.
func (l Layout) Append(b []byte) ([]byte, error) {
	if err := l.Check(); err != nil {
		return b, err
	}
	b = append(b, codeLayout, byte(len(l.Mesh.Dims)))
	for _, n := range l.Mesh.Dims {
		b = binary.AppendUvarint(b, uint64(n))
	}
	for _, p := range l.Placements {
		b = append(b, byte(p.Kind))
		switch p.Kind {
		case Sharded:
			b = append(b, byte(p.Dim))
		case StridedSharded:
			b = binary.AppendUvarint(append(b, byte(p.Dim)), uint64(p.Factor))
		case Reducible:
			b = append(b, byte(p.Op))
		}
	}
	b = binary.AppendUvarint(b, uint64(len(l.Mesh.Ranks)))
	for _, k := range l.Mesh.Ranks {
		b = binary.AppendUvarint(b, uint64(k))
	}
	return b, nil
}

// ReadLayout reads what [Layout.Append] has written at the beginning of b, and returns the rest. It trusts nothing: the
// error of bytes that make no layout is a [stepvan.ProtocolError].
func ReadLayout(b []byte) (Layout, []byte, error) {
	var l Layout
	r := reader{all: b, field: "layout"}
	r.code(codeLayout)
	l.Mesh.Dims = make([]int, r.number("dimensions of the mesh", 0, maxMeshDims))
	l.Placements = make([]Placement, len(l.Mesh.Dims))
	for i := range l.Mesh.Dims {
		l.Mesh.Dims[i] = int(r.number("extent of the mesh", 1, maxMesh))
	}
	for i := range l.Placements {
		l.Placements[i] = r.placement()
	}
	if n := r.number("ranks", 0, int64(min(maxMesh, r.left()))); n > 0 {
		l.Mesh.Ranks = make([]stepvan.Rank, n)
		for i := range l.Mesh.Ranks {
			l.Mesh.Ranks[i] = stepvan.Rank(r.number("rank", 0, maxRank))
		}
	}
	if r.err != nil {
		return Layout{}, nil, r.err
	}
	if err := l.Check(); err != nil {
		return Layout{}, nil, errs.Protocol(r.field, 0, "%v", err)
	}
	return l, b[r.at:], nil
}

func (r *reader) placement() (p Placement) {
	p.Kind = Kind(r.number("kind of a placement", 0, int64(Reducible)))
	switch p.Kind {
	case Sharded:
		p.Dim = int(r.number("dimension", 0, tensor.MaxRank-1))
	case StridedSharded:
		p.Dim = int(r.number("dimension", 0, tensor.MaxRank-1))
		p.Factor = int(r.number("factor", 1, maxSpans))
	case Reducible:
		p.Op = Op(r.number("reduction", 0, int64(opEnd)-1))
	}
	return p
}

// Append appends the encoding of p to b. It refuses a partition that [Partition.Check] refuses.
func (p Partition) Append(b []byte) ([]byte, error) {
	if err := p.Check(); err != nil {
		return b, err
	}
	b = append(b, codePartition)
	for _, n := range []int{p.Dim, p.Stride, p.World, p.ExpertDim, p.ExpertWorld, len(p.Sizes)} {
		b = binary.AppendUvarint(b, uint64(n))
	}
	for _, size := range p.Sizes {
		b = binary.AppendUvarint(b, uint64(size))
	}
	return b, nil
}

// ReadPartition reads what [Partition.Append] has written at the beginning of b, and returns the rest. It trusts
// nothing: the error of bytes that make no partition is a [stepvan.ProtocolError].
func ReadPartition(b []byte) (Partition, []byte, error) {
	var p Partition
	r := reader{all: b, field: "partition"}
	r.code(codePartition)
	p.Dim = int(r.number("partition_dim", 0, tensor.MaxRank-1))
	p.Stride = int(r.number("partition_stride", 0, maxSpans))
	p.World = int(r.number("tensor parallel group", 0, maxMesh))
	p.ExpertDim = int(r.number("dimension of experts", 0, tensor.MaxRank-1))
	p.ExpertWorld = int(r.number("expert parallel group", 0, maxMesh))
	if n := r.number("partition_sizes", 0, int64(min(maxSpans, r.left()))); n > 0 {
		p.Sizes = make([]int64, n)
		for i := range p.Sizes {
			p.Sizes[i] = r.number("size of a block", 0, math.MaxInt64)
		}
	}
	if r.err != nil {
		return Partition{}, nil, r.err
	}
	if err := p.Check(); err != nil {
		return Partition{}, nil, errs.Protocol(r.field, 0, "%v", err)
	}
	return p, b[r.at:], nil
}

// reader takes numbers from bytes of a peer. After the first error it returns the least that the caller allows.
type reader struct {
	all   []byte
	at    int
	field string
	err   error
}

func (r *reader) left() int { return len(r.all) - r.at }

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = errs.Protocol(r.field, r.at, format, args...)
	}
}

func (r *reader) code(want byte) {
	if len(r.all) == 0 || r.all[0] != want {
		r.fail("not the beginning of one (got % x, want %x)", r.all[:min(1, len(r.all))], want)
		return
	}
	r.at = 1
}

func (r *reader) number(what string, least, most int64) int64 {
	if r.err != nil {
		return least
	}
	v, n := binary.Uvarint(r.all[r.at:])
	if n <= 0 {
		r.fail("%s: cut off or too long", what)
		return least
	}
	if v > uint64(math.MaxInt64) || int64(v) < least || int64(v) > most {
		r.fail("%s: out of range (got %d, want %d to %d)", what, v, least, most)
		return least
	}
	r.at += n
	return int64(v)
}

// signed reads how far a span lies from the place where its part would continue.
func (r *reader) signed(most int64) int64 {
	if r.err != nil {
		return 0
	}
	v, n := binary.Varint(r.all[r.at:])
	if n <= 0 {
		r.fail("jump: cut off or too long")
		return 0
	}
	if v > most || v < -most {
		r.fail("jump: out of range (got %d, want at most %d either way)", v, most)
		return 0
	}
	r.at += n
	return v
}

// shape reads the extents of a tensor.
func (r *reader) shape() tensor.Shape {
	dims := make([]int64, r.number("dimensions", 0, tensor.MaxRank))
	for i := range dims {
		dims[i] = r.number("extent", 0, math.MaxInt64)
	}
	s, err := tensor.MakeShape(dims...)
	if err != nil {
		r.fail("%v", err)
	}
	return s
}
