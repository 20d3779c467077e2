package particle

import (
	"encoding/binary"
	"math"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/peer"
	"github.com/stepvan/stepvan/tensor"
)

// op says what a frame is.
type op uint8

// The frames. Each is the mail of a loop to another one.
const (
	opHello  op = 1 + iota // the first: what the loop has and allows
	opPlace                // the driver says where a particle lives
	opPlaced               // the loop knows that
	opCall                 // a message to a particle
	opGet                  // a question for a view
	opReply                // the result of one of these
	opFreed                // a view is not used any more
	opBye                  // the loop was closed
	opEnd
)

// Flags of a frame.
const (
	flagPickled = 1 << iota // the data are for a decoder that runs code
	flagApart               // data and tensors follow as transfers
	flagView                // the tensors are windows
	flagSealed              // the frame ends with a seal
	flagsEnd
)

// code says how a call has ended.
type code uint8

// Codes of replies.
const (
	codeOK      code = iota
	codeHook         // the hook has failed, with a text
	codeInvalid      // there is no such particle or hook, or the frame is wrong
	codeRefused      // a pickled value is not allowed
	codeFull         // there was no room
	codeClosed       // the loop was closed
	codeEnd
)

// step is a call that a chain has gone through: the future that its result is for.
type step struct {
	rank   stepvan.Rank
	number uint64
}

const (
	// maxDepth bounds how deep hooks are nested.
	maxDepth = 200
	maxName  = 128
	// maxInline is how many bytes of data and tensors travel in the frame.
	maxInline = 32 << 10
	// maxText bounds the text of an error.
	maxText = 32 << 10
	// headBytes is the length of the part of a frame that all have.
	headBytes = 64
	stepBytes = 12
	sealBytes = 32
	// numberBytes is the number of a sealed frame, before the seal.
	numberBytes = 8
	tokenBytes  = len(peer.Token{})
	// frameVersion changes when frames do.
	frameVersion = 1
)

// frame is a message between two loops.
type frame struct {
	op       op
	flags    uint8
	code     code
	life     uint32 // which of the loops of a peer it is from, and for
	number   uint64 // of the future
	to, from ID
	chain    uint64
	bytes    int64  // of data that travel apart
	tag      uint64 // of the first transfer, or the number of a view
	name     string
	path     []step
	forms    []form
	tokens   []peer.Token
	data     []byte // or the text of an error
	packed   []byte // the elements of the tensors, without gaps
	seal     []byte
	sealed   []byte // what the seal is about
}

// tagSpace are the tags of transfers that belong to this package. Programs have those below.
const tagSpace = uint64(1) << 62

// append encodes f, without a seal.
func (f *frame) append(b []byte) []byte {
	le := binary.LittleEndian
	b = append(b, byte(f.op), f.flags, byte(f.code), byte(len(f.name)))
	b = le.AppendUint32(b, f.life)
	b = le.AppendUint64(b, f.number)
	b = le.AppendUint64(b, uint64(f.to))
	b = le.AppendUint64(b, uint64(f.from))
	b = le.AppendUint64(b, f.chain)
	b = le.AppendUint64(b, uint64(f.bytes))
	b = le.AppendUint64(b, f.tag)
	b = le.AppendUint16(b, uint16(len(f.path)))
	b = le.AppendUint16(b, uint16(len(f.forms)))
	b = le.AppendUint32(b, uint32(len(f.data)))
	b = append(b, f.name...)
	for _, s := range f.path {
		b = le.AppendUint32(b, uint32(s.rank))
		b = le.AppendUint64(b, s.number)
	}
	for i := range f.forms {
		dims := f.forms[i].shape.Dims()
		b = append(b, byte(f.forms[i].dtype), byte(len(dims)))
		for _, n := range dims {
			b = binary.AppendUvarint(b, uint64(n))
		}
	}
	for i := range f.tokens {
		b = append(b, f.tokens[i][:]...)
	}
	b = append(b, f.data...)
	return append(b, f.packed...)
}

// lifeOf is the life of a frame that is long enough.
func lifeOf(b []byte) uint32 { return binary.LittleEndian.Uint32(b[4:]) }

// readHead reads what all frames have. It trusts nothing.
func readHead(b []byte) (f frame, paths, tensors, data int, err error) {
	le := binary.LittleEndian
	if len(b) < headBytes {
		return f, 0, 0, 0, errs.Protocol("frame", len(b), "it ends within the head")
	}
	f = frame{
		op: op(b[0]), flags: b[1], code: code(b[2]), life: lifeOf(b), number: le.Uint64(b[8:]), to: ID(le.Uint64(b[16:])), from: ID(le.Uint64(b[24:])),
		chain: le.Uint64(b[32:]), bytes: int64(le.Uint64(b[40:])), tag: le.Uint64(b[48:]),
	}
	if f.op == 0 || f.op >= opEnd || f.flags >= flagsEnd || f.code >= codeEnd {
		return f, 0, 0, 0, errs.Protocol("op", 0, "there is no frame %d with flags %#x and code %d", f.op, f.flags, f.code)
	}
	return f, int(le.Uint16(b[56:])), int(le.Uint16(b[58:])), int(le.Uint32(b[60:])), nil
}

// readFrame reads a frame. It trusts nothing, and borrows b. After an error f has the head, where that is whole.
func readFrame(b []byte) (frame, error) {
	f, paths, tensors, data, err := readHead(b)
	if err != nil {
		return f, err
	}
	fail := func(at int, format string, args ...any) (frame, error) {
		return f, errs.Protocol("frame", at, format, args...)
	}
	name, at := int(b[3]), headBytes
	if f.flags&flagSealed != 0 {
		if len(b) < headBytes+numberBytes+sealBytes {
			return fail(len(b), "it ends within the seal")
		}
		end := len(b) - sealBytes
		f.sealed, f.seal, b = b[:end], b[end:], b[:end-numberBytes]
	}
	if name > maxName || paths > maxDepth || tensors > MaxTensors || f.bytes < 0 {
		return fail(at, "a name of %d bytes, %d calls deep, with %d tensors and %d bytes", name, paths, tensors, f.bytes)
	}
	if len(b)-at < name+paths*stepBytes {
		return fail(len(b), "it ends within the name or the path")
	}
	f.name = string(b[at : at+name])
	at += name
	for range paths {
		f.path = append(f.path, step{stepvan.Rank(int32(binary.LittleEndian.Uint32(b[at:]))), binary.LittleEndian.Uint64(b[at+4:])})
		at += stepBytes
	}
	rest, err := f.readForms(b, at, tensors)
	if err != nil {
		return f, err
	}
	return f, f.readBody(b, len(b)-len(rest), data)
}

// readForms reads the forms of the tensors, and returns what follows.
func (f *frame) readForms(b []byte, at, count int) (rest []byte, err error) {
	rest = b[at:]
	total := f.bytes
	for range count {
		at := len(b) - len(rest)
		if len(rest) < 2 || rest[1] > tensor.MaxRank || !tensor.DType(rest[0]).Valid() {
			return nil, errs.Protocol("frame", at, "there is no tensor")
		}
		d, dims := tensor.DType(rest[0]), make([]int64, rest[1])
		rest = rest[2:]
		for i := range dims {
			n, size := binary.Uvarint(rest)
			if size <= 0 || n > math.MaxInt64 {
				return nil, errs.Protocol("frame", at, "there is no dimension")
			}
			dims[i], rest = int64(n), rest[size:]
		}
		shape, err := tensor.MakeShape(dims...)
		if err != nil {
			return nil, errs.Protocol("frame", at, "%v is not a shape", dims)
		}
		n, ok := shape.Bytes(d)
		if !ok || n > math.MaxInt64/2-total {
			return nil, errs.Protocol("frame", at, "%v of %s leaves the address space", dims, d)
		}
		total += n
		f.forms = append(f.forms, form{d, shape})
	}
	return rest, nil
}

// readBody reads what follows the forms.
func (f *frame) readBody(b []byte, at, data int) error {
	if f.flags&flagView != 0 {
		if f.op != opReply || len(b)-at < len(f.forms)*tokenBytes {
			return errs.Protocol("frame", at, "the tokens of %d windows are missing", len(f.forms))
		}
		f.tokens = make([]peer.Token, len(f.forms))
		for i := range f.tokens {
			copy(f.tokens[i][:], b[at:])
			at += tokenBytes
		}
	}
	if len(b)-at < data {
		return errs.Protocol("frame", at, "it ends within the data (got %d, want %d)", len(b)-at, data)
	}
	f.data, f.packed = b[at:at+data], b[at+data:]
	switch {
	case f.flags&flagApart != 0:
		if data+len(f.packed) > 0 || f.flags&flagView != 0 || f.tag < tagSpace || f.tag >= 2*tagSpace-2*MaxTensors {
			return errs.Protocol("frame", at, "it has data, or tag %#x, although its value travels apart", f.tag)
		}
	case f.flags&flagView != 0:
		if len(f.packed) > 0 || f.bytes != 0 {
			return errs.Protocol("frame", at, "elements follow windows")
		}
	case f.bytes != 0 || f.tensorBytes() != int64(len(f.packed)):
		return errs.Protocol("frame", at, "the elements do not fit the tensors (got %d, want %d)", len(f.packed), f.tensorBytes())
	}
	return nil
}

// tensorBytes is the size of all tensors.
func (f *frame) tensorBytes() (n int64) {
	for i := range f.forms {
		n += f.forms[i].bytes()
	}
	return n
}
