package reshard

import (
	"encoding/binary"
	"hash/crc32"
	"math"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/tensor"
)

// The encoding of a plan, in little endian. Programs in other languages read the tables of operations as they are.
//
//	8 bytes: "stvplan" and the version
//	5 numbers of 8 bytes: rank, batches, sends, receives, bytes of what follows
//	the tensors, in varints: the count of sources, the count of destinations, and of each tensor the length of its
//	    name, the name, the length of its resolved name (0: the name), that, both types, and its shape
//	zeros up to a multiple of 8 bytes
//	of the sends and then of the receives:
//	    24 bytes of each operation: task (8), peer (4), tensor (4), batch (4), dimensions (1), whole (1), zeros (2)
//	    3 numbers of 8 bytes for each dimension of each operation: offsets here, offsets there, extents
//	4 bytes: the CRC-32 of IEEE of all bytes before
const (
	planMagic  = "stvplan\x01"
	planFixed  = len(planMagic) + 5*8
	opBytes    = 24
	maxBatches = 1 << 31
)

// Append appends the encoding of p to b.
func (p *Plan) Append(b []byte) []byte {
	start := len(b)
	tensors := appendTensors(nil, p.Sources, p.Destinations)
	b = append(b, planMagic...)
	for _, n := range []int{int(p.Rank), p.Batches, p.Sends.Len(), p.Recvs.Len(), len(tensors)} {
		b = binary.LittleEndian.AppendUint64(b, uint64(n))
	}
	b = append(b, tensors...)
	for (len(b)-start)%8 != 0 {
		b = append(b, 0)
	}
	b = p.Sends.append(b)
	b = p.Recvs.append(b)
	return binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(b[start:]))
}

func appendTensors(b []byte, sources, destinations []Tensor) []byte {
	b = binary.AppendUvarint(b, uint64(len(sources)))
	b = binary.AppendUvarint(b, uint64(len(destinations)))
	for _, all := range [][]Tensor{sources, destinations} {
		for i := range all {
			t := &all[i]
			b = append(binary.AppendUvarint(b, uint64(len(t.Name))), t.Name...)
			resolved := t.Resolved
			if resolved == t.Name {
				resolved = ""
			}
			b = append(binary.AppendUvarint(b, uint64(len(resolved))), resolved...)
			b = appendShape(append(b, byte(t.DType), byte(t.Wire)), t.Shape)
		}
	}
	return b
}

func (o *Ops) append(b []byte) []byte {
	for i := range o.heads {
		h := &o.heads[i]
		b = binary.LittleEndian.AppendUint64(b, h.task)
		for _, n := range [3]int32{h.peer, h.tensor, h.batch} {
			b = binary.LittleEndian.AppendUint32(b, uint32(n))
		}
		b = append(b, h.dims, h.whole, 0, 0)
	}
	for _, n := range o.boxes {
		b = binary.LittleEndian.AppendUint64(b, uint64(n))
	}
	return b
}

// ReadPlan reads what [Plan.Append] has written. It trusts nothing: the error of bytes that make no plan is a
// [stepvan.ProtocolError]. Every box of the result lies in its parameter. That the other ranks have the plan that
// belongs to it is for a run to find out.
func ReadPlan(b []byte) (*Plan, error) {
	r := reader{all: b, field: "plan"}
	if len(b) < planFixed+4 || string(b[:len(planMagic)-1]) != planMagic[:len(planMagic)-1] {
		r.fail("not the beginning of one (got % x, want %q): give what a plan was written to", b[:min(8, len(b))], planMagic)
		return nil, r.err
	}
	if b[len(planMagic)-1] != planMagic[len(planMagic)-1] {
		r.fail("another version (got %d, want %d): make the plan anew", b[len(planMagic)-1], planMagic[len(planMagic)-1])
		return nil, r.err
	}
	end := len(b) - 4
	if got, want := crc32.ChecksumIEEE(b[:end]), binary.LittleEndian.Uint32(b[end:]); got != want {
		r.fail("the checksum is wrong (got %08x, want %08x): the file is damaged or cut off", got, want)
		return nil, r.err
	}
	r.all, r.at = b[:end], len(planMagic)
	p := &Plan{Rank: stepvan.Rank(r.fixed("rank", 0, maxRank)), Batches: int(r.fixed("batches", 1, maxBatches))}
	sends := r.fixed("sends", 0, int64(len(b)/opBytes))
	recvs := r.fixed("receives", 0, int64(len(b)/opBytes))
	p.tensors(&r, r.fixed("length of the tensors", 0, int64(len(b))))
	p.Sends.read(&r, int(sends), p.Batches, p.Sources)
	p.Recvs.read(&r, int(recvs), p.Batches, p.Destinations)
	if r.err == nil && r.left() > 0 {
		r.fail("%d bytes follow the end", r.left())
	}
	if r.err != nil {
		return nil, r.err
	}
	return p, nil
}

// fixed reads a number of 8 bytes.
func (r *reader) fixed(what string, least, most int64) int64 {
	if r.left() < 8 {
		r.fail("%s: cut off", what)
	}
	if r.err != nil {
		return least
	}
	v := binary.LittleEndian.Uint64(r.all[r.at:])
	if v > math.MaxInt64 || int64(v) < least || int64(v) > most {
		r.fail("%s: out of range (got %d, want %d to %d)", what, v, least, most)
		return least
	}
	r.at += 8
	return int64(v)
}

// tensors reads size bytes, and the zeros behind them.
func (p *Plan) tensors(r *reader, size int64) {
	if r.err != nil || size > int64(r.left()) {
		r.fail("the tensors are cut off")
		return
	}
	end := r.at + int(size)
	inner := reader{all: r.all[:end], at: r.at, field: "tensors of a plan"}
	counts := [2]int{}
	for i := range counts {
		counts[i] = int(inner.number("tensors", 0, min(maxParameters, size/5)))
	}
	p.Sources, p.Destinations = inner.tensors(counts[0]), inner.tensors(counts[1])
	if inner.err == nil && inner.left() > 0 {
		inner.fail("%d bytes follow the end", inner.left())
	}
	r.err = inner.err
	for r.at = end; r.err == nil && r.at%8 != 0; {
		if r.byte() != 0 {
			r.fail("the bytes behind the tensors are not 0")
		}
	}
}

func (r *reader) tensors(count int) []Tensor {
	var all []Tensor
	for range count {
		t := Tensor{Name: r.text(1), Resolved: r.text(0), DType: tensor.DType(r.byte()), Wire: tensor.DType(r.byte()), Shape: r.shape()}
		if t.Resolved == "" {
			t.Resolved = t.Name
		}
		if r.err == nil && (!t.DType.Valid() || !t.Wire.Valid()) {
			r.fail("a type does not exist (got %d and %d)", uint8(t.DType), uint8(t.Wire))
		}
		if r.err != nil {
			return nil
		}
		all = append(all, t)
	}
	return all
}

// text reads a name of at least so many bytes.
func (r *reader) text(least int64) string {
	n := r.length("length of a name", least, maxName)
	if r.err != nil {
		return ""
	}
	r.at += n
	return string(r.all[r.at-n : r.at])
}

// read reads operations on some tensors.
func (o *Ops) read(r *reader, count, batches int, of []Tensor) {
	if r.err != nil || count > r.left()/opBytes {
		r.fail("the operations are cut off")
		return
	}
	o.heads = make([]opHead, count)
	total := int64(0)
	for i := range o.heads {
		o.heads[i].read(r, total, batches, of)
		total += 3 * int64(o.heads[i].dims)
	}
	if r.err == nil && total > int64(r.left()/8) {
		r.fail("the boxes are cut off")
	}
	if r.err != nil {
		return
	}
	o.boxes = make([]int64, total)
	for i := range o.boxes {
		o.boxes[i] = r.fixed("number of a box", 0, math.MaxInt64)
	}
	for i := range o.heads {
		o.heads[i].check(r, o.boxes, of)
	}
}

func (h *opHead) read(r *reader, box int64, batches int, of []Tensor) {
	if r.err != nil {
		return
	}
	b := r.all[r.at : r.at+opBytes]
	number := func(i int) int32 { return int32(binary.LittleEndian.Uint32(b[i:])) }
	*h = opHead{task: binary.LittleEndian.Uint64(b), peer: number(8), tensor: number(12), batch: number(16), dims: b[20], whole: b[21], box: box}
	switch {
	case h.peer < 0 || h.batch < 0 || int(h.batch) >= batches || b[22]|b[23] != 0:
		r.fail("an operation is out of range (got rank %d and batch %d of %d)", h.peer, h.batch, batches)
	case h.tensor < 0 || int(h.tensor) >= len(of):
		r.fail("an operation names a tensor that is not there (got %d of %d)", h.tensor, len(of))
	case int(h.dims) != of[h.tensor].Shape.Rank():
		r.fail("an operation and its tensor differ in dimensions (got %d for %s)", h.dims, of[h.tensor].Shape)
	default:
		r.at += opBytes
	}
}

// check refuses a box that leaves its tensor.
func (h *opHead) check(r *reader, boxes []int64, of []Tensor) {
	if r.err != nil {
		return
	}
	n := int64(h.dims)
	for d, extent := range of[h.tensor].Shape.Dims() {
		mine, theirs, size := boxes[h.box+int64(d)], boxes[h.box+n+int64(d)], boxes[h.box+2*n+int64(d)]
		if size > extent || mine > extent-size || theirs > math.MaxInt64-size {
			r.fail("a box leaves its tensor (got %d elements from %d on in dimension %d of %s)", size, mine, d, of[h.tensor].Shape)
			return
		}
	}
}
