package wire

import (
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/stepvan/stepvan/tensor"
)

// Descriptor describes one tensor of a message.
//
// Region, Offset and Generation name memory in a grant:
//
//   - In a push, the memory of the receiver into which the payload was written.
//   - In a push with DescInPlace, the memory of the sender where the receiver reads the bytes.
//   - In a pull, the memory of the sender into which the receiver may write the response.
//   - In a response, the memory of the receiver into which the payload was written: what the pull has named.
//   - In an announcement, the memory of the sender into which the receiver may write pushes.
//
// What they say is the peer's claim, which the van checks against the grant.
type Descriptor struct {
	Key        tensor.Key
	Bytes      uint64       // payload bytes of a push; room of a pull; bytes of an answer
	Region     uint64       // grant that reaches the memory, over one-sided vans; 0 for none
	Offset     uint64       // byte offset of the memory in that grant
	Generation uint32       // generation of that grant
	DType      tensor.DType //
	Flags      DescriptorFlags
	Shape      tensor.Shape
}

// DescriptorFlags qualify a tensor.
type DescriptorFlags uint16

// Descriptor flag bits.
const (
	// DescVariable marks a pull that may be answered with fewer bytes than it has room for.
	DescVariable DescriptorFlags = 1 << iota
	// DescInPlace marks a tensor whose bytes are not in the payload. The receiver reads those of a push in the sender's
	// memory. Those of an answered pull have been written into the receiver's memory.
	DescInPlace
)

// inMessage is how many bytes of the payload belong to the tensor.
func (d *Descriptor) inMessage() uint64 {
	if d.Flags&DescInPlace != 0 {
		return 0
	}
	return d.Bytes
}

const (
	descFixed = 40
	// MaxDescriptorSize is the encoded size of a descriptor with the most dimensions.
	MaxDescriptorSize = descFixed + 8*tensor.MaxRank
)

// Size returns the encoded size in bytes.
func (d *Descriptor) Size() int { return descFixed + 8*len(d.Shape.Dims()) }

// Append encodes d behind b.
func (d *Descriptor) Append(b []byte) []byte { return d.AppendShaped(b, d.Shape.Dims()) }

// AppendShaped is Append with dims in place of d.Shape, which need not be copied then.
func (d *Descriptor) AppendShaped(b []byte, dims []int64) []byte {
	at := len(b)
	end := at + descFixed + 8*len(dims)
	if end > cap(b) {
		b = slices.Grow(b, MaxDescriptorSize)
	}
	b = b[:end]
	e, le := b[at:], binary.LittleEndian
	_ = e[descFixed-1]
	le.PutUint64(e, uint64(d.Key))
	le.PutUint64(e[8:], d.Bytes)
	le.PutUint64(e[16:], d.Region)
	le.PutUint64(e[24:], d.Offset)
	le.PutUint32(e[32:], d.Generation)
	e[36], e[37] = byte(d.DType), byte(len(dims))
	le.PutUint16(e[38:], uint16(d.Flags))
	for i, n := range dims {
		le.PutUint64(e[descFixed+8*i:], uint64(n))
	}
	return b
}

// Decode reads a descriptor at the start of b and returns what follows it. It checks the dtype, the shape, and that
// Bytes is the size of dtype and shape. The argument at is the offset of b in the meta, for the text of an error.
func (d *Descriptor) Decode(b []byte, at int) (rest []byte, err error) {
	if len(b) < descFixed {
		return nil, bad("descriptor", at, "cut off: %d of %d bytes", len(b), descFixed)
	}
	le := binary.LittleEndian
	d.Key = tensor.Key(le.Uint64(b))
	d.Bytes = le.Uint64(b[8:])
	d.Region = le.Uint64(b[16:])
	d.Offset = le.Uint64(b[24:])
	d.Generation = le.Uint32(b[32:])
	d.DType = tensor.DType(b[36])
	rank := int(b[37])
	d.Flags = DescriptorFlags(le.Uint16(b[38:]))
	if !d.DType.Valid() {
		return nil, bad("dtype", at+36, "unknown dtype %d", b[36])
	}
	if rank > tensor.MaxRank {
		return nil, bad("rank", at+37, "%d dimensions, at most %d", rank, tensor.MaxRank)
	}
	if len(b) < descFixed+8*rank {
		return nil, bad("shape", at+descFixed, "cut off: %d of %d bytes", len(b)-descFixed, 8*rank)
	}
	var dims [tensor.MaxRank]int64
	for i := range rank {
		dims[i] = int64(le.Uint64(b[descFixed+8*i:]))
	}
	elems, ok := d.Shape.SetDims(dims[:rank]...)
	if !ok {
		return nil, badShape(dims, rank, at)
	}
	if hi, bytes := bits.Mul64(uint64(elems), uint64(d.DType.Size())); hi != 0 || bytes != d.Bytes {
		return nil, bad("bytes", at+8, "%d bytes do not fit %v of %v", d.Bytes, d.Shape, d.DType)
	}
	return b[descFixed+8*rank:], nil
}

// badShape has its own copy of dims, which would be allocated for each descriptor otherwise.
func badShape(dims [tensor.MaxRank]int64, rank, at int) error {
	_, err := tensor.MakeShape(dims[:rank]...)
	return bad("shape", at+descFixed, "%v", err)
}
