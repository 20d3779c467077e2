package bus

import (
	"fmt"

	"github.com/tinylib/msgp/msgp"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/text"
	"github.com/stepvan/stepvan/layout"
	"github.com/stepvan/stepvan/tensor"
)

// maxMeshDims is how many dimensions a mesh may have.
const maxMeshDims = 8

// EncodeMesh returns the payload of the shape of a mesh, such as [2, 4].
func EncodeMesh(dims []int) []byte {
	b := msgp.AppendArrayHeader(nil, uint32(len(dims)))
	for _, n := range dims {
		b = msgp.AppendUint64(b, uint64(n))
	}
	return b
}

// DecodeMesh reads the shape of a mesh. It trusts nothing. The errors are [stepvan.ProtocolError].
func DecodeMesh(b []byte) ([]int, error) {
	f := payloadFields("mesh_shape_payload", b)
	dims := make([]int, f.nextArray(maxMeshDims))
	for i := range dims {
		dims[i] = int(f.nextNumber(maxWorld))
	}
	f.endValue()
	return dims, f.err
}

// EncodePlacements returns the payload of placements: ["S", dim], ["R"], ["P", op] and ["SS", dim, factor].
func EncodePlacements(all []layout.Placement) []byte {
	b := msgp.AppendArrayHeader(nil, uint32(len(all)))
	for _, p := range all {
		switch p.Kind {
		case layout.Sharded:
			b = msgp.AppendUint64(msgp.AppendString(msgp.AppendArrayHeader(b, 2), "S"), uint64(p.Dim))
		case layout.StridedSharded:
			b = msgp.AppendUint64(msgp.AppendString(msgp.AppendArrayHeader(b, 3), "SS"), uint64(p.Dim))
			b = msgp.AppendUint64(b, uint64(p.Factor))
		case layout.Reducible:
			b = msgp.AppendString(msgp.AppendString(msgp.AppendArrayHeader(b, 2), "P"), p.Op.String())
		default:
			b = msgp.AppendString(msgp.AppendArrayHeader(b, 1), "R")
		}
	}
	return b
}

// DecodePlacements reads placements. It trusts nothing. The errors are [stepvan.ProtocolError].
func DecodePlacements(b []byte) ([]layout.Placement, error) {
	f := payloadFields("placements_payload", b)
	all := make([]layout.Placement, f.nextArray(maxMeshDims))
	for i := range all {
		n := f.nextArray(3)
		switch kind := f.nextText(); {
		case f.err != nil:
		case kind == "R" && n == 1:
			all[i] = layout.Replicate()
		case kind == "S" && n == 2:
			all[i] = layout.Shard(int(f.nextNumber(tensor.MaxRank - 1)))
		case kind == "SS" && n == 3:
			all[i] = layout.StridedShard(int(f.nextNumber(tensor.MaxRank-1)), int(f.nextNumber(maxWorld)))
		case kind == "P" && n == 2:
			op, err := layout.ParseOp(f.nextText())
			if err != nil {
				f.fail("%v", err)
			}
			all[i] = layout.Partial(op)
		default:
			f.fail("unknown placement of %d parts (got %q, want S, R, P or SS)", n, text.Cut(kind))
		}
	}
	f.endValue()
	return all, f.err
}

// layout reads the layout of the local side. It is nil for whole tensors.
func (c *InitPair) layout() (*layout.Layout, error) {
	if (c.MeshShape == nil) != (c.Placements == nil) {
		return nil, errs.Invalid("InitPair: mesh_shape_payload and placements_payload: one is there without the other (got %d and %d bytes): give both, or none",
			len(c.MeshShape), len(c.Placements))
	}
	if c.MeshShape == nil {
		return nil, nil
	}
	if n := max(len(c.MeshShape), len(c.Placements)); n > maxPayload {
		return nil, errs.Invalid("InitPair: mesh_shape_payload or placements_payload: too long (got %d, want at most %d bytes): use EncodeMesh and EncodePlacements", n, maxPayload)
	}
	dims, err := DecodeMesh(c.MeshShape)
	if err != nil {
		return nil, err
	}
	placements, err := DecodePlacements(c.Placements)
	if err != nil {
		return nil, err
	}
	l := &layout.Layout{Mesh: layout.MeshOf(dims...), Placements: placements}
	if err := l.Check(); err != nil {
		return nil, err
	}
	if n := l.Mesh.Size(); n != c.ExpectedWorldSize {
		return nil, errs.Invalid("InitPair: mesh_shape_payload: the mesh and expected_world_size differ (got %v with %d ranks, want %d): give the mesh of the local side",
			dims, n, c.ExpectedWorldSize)
	}
	return l, nil
}

// TensorHandle says where a tensor of a client is: in memory that the client has shared with its agent.
type TensorHandle struct {
	Memory  uint64 // the number that the client's session gave the memory
	Offset  int64  // of the first element, in bytes
	DType   tensor.DType
	Shape   tensor.Shape
	Strides []int64 // in elements
}

// Encode returns the payload of a handle: [memory, offset, type, shape, strides]. It has at most [MaxHandle] bytes.
// The errors are [stepvan.ErrInvalid].
func (h *TensorHandle) Encode() ([]byte, error) {
	if _, err := tensor.Span(h.DType, h.Shape, h.Strides); err != nil {
		return nil, fmt.Errorf("tensor handle: %w", err)
	}
	if h.Offset < 0 {
		return nil, errs.Invalid("tensor handle: offset: it is negative (got %d): count from the beginning of the memory", h.Offset)
	}
	b := msgp.AppendArrayHeader(nil, 5)
	b = msgp.AppendUint64(b, h.Memory)
	b = msgp.AppendUint64(b, uint64(h.Offset))
	b = msgp.AppendString(b, h.DType.String())
	b = appendExtents(b, h.Shape.Dims())
	if b = appendExtents(b, h.Strides); len(b) > MaxHandle {
		return nil, errs.Invalid("tensor handle: too long (got %d, want at most %d bytes): give a view with fewer dimensions or smaller strides", len(b), MaxHandle)
	}
	return b, nil
}

func appendExtents(b []byte, all []int64) []byte {
	b = msgp.AppendArrayHeader(b, uint32(len(all)))
	for _, n := range all {
		b = msgp.AppendUint64(b, uint64(n))
	}
	return b
}

// DecodeHandle reads a handle. It trusts nothing. The errors are [stepvan.ProtocolError].
func DecodeHandle(b []byte) (h TensorHandle, err error) {
	f := payloadFields("tensor handle", b)
	f.tuple(5)
	h.Memory, h.Offset = f.nextNumber(1<<64-1), int64(f.nextNumber(1<<62))
	if name := f.nextText(); f.err == nil {
		if h.DType, err = tensor.ParseDType(name); err != nil {
			f.fail("%v", err)
		}
	}
	dims := f.extents()
	h.Strides = f.extents()
	f.endValue()
	if f.err != nil {
		return TensorHandle{}, f.err
	}
	if h.Shape, err = tensor.MakeShape(dims...); err == nil {
		_, err = tensor.Span(h.DType, h.Shape, h.Strides)
	}
	if err != nil {
		return TensorHandle{}, errs.Protocol(f.what, 0, "%v", err)
	}
	return h, nil
}

func (f *fields) extents() []int64 {
	all := make([]int64, f.nextArray(tensor.MaxRank))
	for i := range all {
		all[i] = int64(f.nextNumber(1 << 62))
	}
	return all
}

// payloadFields reads a payload.
func payloadFields(what string, b []byte) *fields { return &fields{all: b, rest: b, what: what} }
