package main

// #include "boundary.h"
import "C"

import (
	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/trace"
)

// What stepvan.h and Go both number must have the same numbers: a difference is an index out of range, which
// the compiler refuses.
var (
	_ = [1]struct{}{}[C.STEPVAN_BOOL-C.int(tensor.Bool)]
	_ = [1]struct{}{}[C.STEPVAN_UINT8-C.int(tensor.Uint8)]
	_ = [1]struct{}{}[C.STEPVAN_INT8-C.int(tensor.Int8)]
	_ = [1]struct{}{}[C.STEPVAN_UINT16-C.int(tensor.Uint16)]
	_ = [1]struct{}{}[C.STEPVAN_INT16-C.int(tensor.Int16)]
	_ = [1]struct{}{}[C.STEPVAN_UINT32-C.int(tensor.Uint32)]
	_ = [1]struct{}{}[C.STEPVAN_INT32-C.int(tensor.Int32)]
	_ = [1]struct{}{}[C.STEPVAN_UINT64-C.int(tensor.Uint64)]
	_ = [1]struct{}{}[C.STEPVAN_INT64-C.int(tensor.Int64)]
	_ = [1]struct{}{}[C.STEPVAN_FLOAT16-C.int(tensor.Float16)]
	_ = [1]struct{}{}[C.STEPVAN_BFLOAT16-C.int(tensor.BFloat16)]
	_ = [1]struct{}{}[C.STEPVAN_FLOAT32-C.int(tensor.Float32)]
	_ = [1]struct{}{}[C.STEPVAN_FLOAT64-C.int(tensor.Float64)]
	_ = [1]struct{}{}[C.STEPVAN_COMPLEX32-C.int(tensor.Complex32)]
	_ = [1]struct{}{}[C.STEPVAN_COMPLEX64-C.int(tensor.Complex64)]
	_ = [1]struct{}{}[C.STEPVAN_COMPLEX128-C.int(tensor.Complex128)]
	_ = [1]struct{}{}[C.STEPVAN_FLOAT8_E4M3FN-C.int(tensor.Float8E4M3FN)]
	_ = [1]struct{}{}[C.STEPVAN_FLOAT8_E5M2-C.int(tensor.Float8E5M2)]
	_ = [1]struct{}{}[C.STEPVAN_FLOAT8_E4M3FNUZ-C.int(tensor.Float8E4M3FNUZ)]
	_ = [1]struct{}{}[C.STEPVAN_FLOAT8_E5M2FNUZ-C.int(tensor.Float8E5M2FNUZ)]
	_ = [1]struct{}{}[C.STEPVAN_FLOAT8_E8M0FNU-C.int(tensor.Float8E8M0FNU)]
	_ = [1]struct{}{}[C.STEPVAN_FLOAT4_E2M1FN_X2-C.int(tensor.Float4E2M1FNX2)]

	_ = [1]struct{}{}[maxRank-tensor.MaxRank]
	_ = [1]struct{}{}[stampCount-trace.StampCount]

	_ = [1]struct{}{}[roleWorker-1<<0]
	_ = [1]struct{}{}[roleServer-1<<1]
	_ = [1]struct{}{}[roleScheduler-1<<2]
	_ = [1]struct{}{}[rolePeer-1<<3]

	_ = [1]struct{}{}[C.STEPVAN_ROUTING_DEFAULT-0]
	_ = [1]struct{}{}[C.STEPVAN_BROADCAST-1]
	_ = [1]struct{}{}[C.STEPVAN_BY_KEY-2]
	_ = [1]struct{}{}[C.STEPVAN_NAMED-3]

	_ = [1]struct{}{}[C.STEPVAN_POLICY_DEFAULT-C.int(ps.DefaultPolicy)]
	_ = [1]struct{}{}[C.STEPVAN_LOCK_STEP-C.int(ps.LockStep)]
	_ = [1]struct{}{}[C.STEPVAN_ANY_READY-C.int(ps.AnyReady)]
)
