package main

// #include "boundary.h"
import "C"

import (
	"unsafe"

	"github.com/stepvan/stepvan/layout"
	"github.com/stepvan/stepvan/tensor"
)

// goPartOfSpans implements
//
//	int32_t stepvan_part_of_spans(const int64_t *shape, uint32_t rank, const stepvan_span *spans, const uint32_t
//	    *counts, stepvan_bytes *part, stepvan_error *error);
//
//export goPartOfSpans
func goPartOfSpans(shape *cInt64, rank cUint32, spans *C.stepvan_span, counts *cUint32, part *cBytes, e *cError) cCode {
	return half(e, func() error {
		whole, err := shapeOf(shape, rank, part)
		if err != nil {
			return err
		}
		if counts == nil && rank > 0 {
			return isNull("counts")
		}
		lists, total := make([][]layout.Span, rank), cUint64(0)
		of := list[uint32](unsafe.Pointer(counts), cUint64(rank))
		for _, n := range of {
			total += cUint64(n)
		}
		if total > 0 && spans == nil {
			return isNull("spans")
		}
		all := list[layout.Span](unsafe.Pointer(spans), total)
		for i, n := range of {
			lists[i], all = all[:n], all[n:]
		}
		p, err := layout.NewPart(whole, lists...)
		return writePart(&p, part, err)
	})
}

// goPartOfMesh implements
//
//	int32_t stepvan_part_of_mesh(const int64_t *shape, uint32_t rank, const uint32_t *mesh, const
//	    stepvan_placement *placements, uint32_t dims, uint64_t index, stepvan_bytes *part, stepvan_error
//	    *error);
//
//export goPartOfMesh
func goPartOfMesh(shape *cInt64, rank cUint32, mesh *cUint32, placements *C.stepvan_placement, dims cUint32, index cUint64, part *cBytes, e *cError) cCode {
	return half(e, func() error {
		whole, err := shapeOf(shape, rank, part)
		if err != nil {
			return err
		}
		if dims > maxMeshDims || dims > 0 && (mesh == nil || placements == nil) || index > maxList {
			return invalid("mesh, placements, dims and index: there cannot be %d dimensions at %p and %p, or an index of %d", dims, mesh, placements, index)
		}
		var l layout.Layout
		for _, n := range list[uint32](unsafe.Pointer(mesh), cUint64(dims)) {
			l.Mesh.Dims = append(l.Mesh.Dims, int(n))
		}
		for _, c := range list[cPlacement](unsafe.Pointer(placements), cUint64(dims)) {
			p := layout.Placement{Kind: layout.Kind(c.kind), Dim: int(c.dim), Factor: int(c.factor)}
			if p.Kind == layout.Reducible {
				return invalid("placements: a rank of a partial tensor has no part of it: reduce it first")
			}
			l.Placements = append(l.Placements, p)
		}
		p, err := l.Part(whole, int(index))
		return writePart(&p, part, err)
	})
}

// maxMeshDims bounds the dimensions of a mesh.
const maxMeshDims = 64

// goPartOfPartition implements
//
//	int32_t stepvan_part_of_partition(const int64_t *shape, uint32_t rank, const stepvan_partition *partition,
//	    uint64_t number, stepvan_bytes *part, stepvan_error *error);
//
//export goPartOfPartition
func goPartOfPartition(shape *cInt64, rank cUint32, partition *C.stepvan_partition, number cUint64, part *cBytes, e *cError) cCode {
	return half(e, func() error {
		whole, err := shapeOf(shape, rank, part)
		switch {
		case err != nil:
			return err
		case partition == nil || partition.sizes == nil && partition.size_count > 0:
			return isNull("partition and its sizes")
		case partition.size_count > maxTensors || number > maxList:
			return invalid("size_count and number are out of range (got %d and %d)", partition.size_count, number)
		}
		p, err := layout.Partition{
			Dim: int(partition.dim), Stride: int(partition.stride), World: int(partition.world),
			ExpertDim: int(partition.expert_dim), ExpertWorld: int(partition.expert_world),
			Sizes: list[int64](unsafe.Pointer(partition.sizes), cUint64(partition.size_count)),
		}.Part(whole, int(number))
		return writePart(&p, part, err)
	})
}

// goPartShape implements
//
//	int32_t stepvan_part_shape(const stepvan_bytes *part, int64_t *shape, int64_t *local, uint32_t *rank,
//	    stepvan_error *error);
//
//export goPartShape
func goPartShape(part *cBytes, shape, local *cInt64, rank *cUint32, e *cError) cCode {
	return half(e, func() error {
		if part == nil || shape == nil || local == nil || rank == nil {
			return isNull("part, shape, local and rank")
		}
		p, err := partOf(part, map[string]layout.Part{})
		if err != nil {
			return err
		}
		whole, mine := p.Shape(), p.Local()
		*rank = cUint32(copy(list[int64](unsafe.Pointer(shape), maxRank), whole.Dims()))
		copy(list[int64](unsafe.Pointer(local), maxRank), mine.Dims())
		return nil
	})
}

// shapeOf reads the shape of a whole tensor.
func shapeOf(dims *cInt64, rank cUint32, part *cBytes) (s tensor.Shape, err error) {
	if part == nil || rank > 0 && dims == nil {
		return s, isNull("shape and part")
	}
	if rank > maxRank {
		return s, invalid("shape: it has %d dimensions (want at most %d)", rank, maxRank)
	}
	return tensor.MakeShape(list[int64](unsafe.Pointer(dims), cUint64(rank))...)
}

// writePart gives C a part.
func writePart(p *layout.Part, part *cBytes, err error) error {
	if err == nil {
		*part, err = allocated(p.Append(nil))
	}
	return err
}
