package main

// #include "boundary.h"
import "C"

import (
	"unsafe"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/reshard"
)

// goReshardPlan implements
//
//	int32_t stepvan_reshard_plan(const stepvan_bytes *rosters, uint64_t count, uint32_t world, uint64_t batch_bytes,
//	    uint32_t flags, const uint32_t *ranks, uint64_t plan_count, stepvan_bytes *plans, stepvan_error *error);
//
//export goReshardPlan
func goReshardPlan(rosters *cBytes, count cUint64, world cUint32, batchBytes cUint64, flags cUint32, ranks *cUint32, planCount cUint64, plans *cBytes, e *cError) cCode {
	return half(e, func() error {
		switch {
		case planCount > maxList || planCount > 0 && (ranks == nil || plans == nil):
			return isNull("ranks and plans")
		case flags&^flagCast != 0:
			return invalid("flags: some do not exist (got %#x, want 0 or STEPVAN_RESHARD_CAST)", flags)
		case batchBytes > 1<<62 || world > 1<<31-1:
			return invalid("batch_bytes and world are out of range (got %d and %d)", batchBytes, world)
		}
		all, err := bytesOf("rosters", rosters, count)
		if err != nil {
			return err
		}
		p, err := reshard.NewPlanner(all, reshard.Options{World: int(world), BatchBytes: int64(batchBytes), Cast: flags&flagCast != 0})
		if err != nil {
			return err
		}
		return writePlans(p, list[uint32](unsafe.Pointer(ranks), planCount), list[cBytes](unsafe.Pointer(plans), planCount))
	})
}

// bytesOf are bytes of C, for the duration of the call.
func bytesOf(what string, p *cBytes, count cUint64) ([][]byte, error) {
	if count > maxList || p == nil && count > 0 {
		return nil, isNull(what)
	}
	all := make([][]byte, count)
	for i, b := range list[cBytes](unsafe.Pointer(p), count) {
		if b.data == nil && b.bytes > 0 || !addressable(b.data, uint64(b.bytes)) {
			return nil, invalid("%s[%d]: %d bytes at %#x are not readable memory", what, i, b.bytes, uintptr(b.data))
		}
		all[i] = list[byte](b.data, b.bytes)
	}
	return all, nil
}

// writePlans gives C all plans, or none.
func writePlans(p *reshard.Planner, ranks []uint32, to []cBytes) error {
	var err error
	done := 0
	for ; done < len(ranks) && err == nil; done++ {
		var plan *reshard.Plan
		if plan, err = p.Plan(stepvan.Rank(ranks[done])); err == nil {
			to[done], err = allocated(plan.Append(nil))
		}
	}
	if err != nil {
		for i := range to[:done-1] {
			C.free(to[i].data)
		}
		clear(to)
	}
	return err
}

// allocated is a copy of b in memory of malloc.
func allocated(b []byte) (cBytes, error) {
	p := C.boundary_alloc(C.size_t(len(b)))
	if p == nil {
		return cBytes{}, &coded{codeNoMemory, invalid("no memory for a plan of %d bytes", len(b))}
	}
	copy(unsafe.Slice((*byte)(p), len(b)), b)
	return cBytes{data: p, bytes: cUint64(len(b))}, nil
}

// goReshardCheck implements
//
//	int32_t stepvan_reshard_check(const void *plan, uint64_t bytes, stepvan_error *error);
//
//export goReshardCheck
func goReshardCheck(plan unsafe.Pointer, n cUint64, e *cError) cCode {
	return half(e, func() error {
		all, err := bytesOf("plan", &cBytes{data: plan, bytes: n}, 1)
		if err == nil {
			_, err = reshard.ReadPlan(all[0])
		}
		return err
	})
}

// goReshardSource implements
//
//	int32_t stepvan_reshard_source(const stepvan_bytes *sources, uint64_t count, const stepvan_bytes *destination,
//	    uint32_t *rank, stepvan_error *error);
//
//export goReshardSource
func goReshardSource(sources *cBytes, count cUint64, destination *cBytes, rank *cUint32, e *cError) cCode {
	return half(e, func() error {
		if destination == nil || rank == nil {
			return isNull("destination and rank")
		}
		all, err := bytesOf("sources", sources, count)
		if err != nil {
			return err
		}
		to, err := bytesOf("destination", destination, 1)
		if err != nil {
			return err
		}
		chosen, err := reshard.ChooseSource(all, to[0])
		if err == nil {
			*rank = cUint32(chosen)
		}
		return err
	})
}
