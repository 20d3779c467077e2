package main

// #include "boundary.h"
import "C"

import (
	"unsafe"

	"github.com/stepvan/stepvan/tensor"
)

// views appends the Go form of views of C to dst.
func (k *call) views(dst []tensor.Strided, src []cView) ([]tensor.Strided, error) {
	for i := range src {
		dst = append(dst, tensor.Strided{})
		if err := k.view(&dst[len(dst)-1], &src[i]); err != nil {
			return dst, err
		}
	}
	return dst, nil
}

// view makes s of a view of C, in its memory. Like a tensor without a number, memory without one gets a window, which
// the owner of the operation keeps.
func (k *call) view(s *tensor.Strided, c *cView) error {
	switch {
	case c.rank > maxRank:
		return invalid("view: it has %d dimensions (want at most %d)", c.rank, maxRank)
	case c.flags != 0:
		return invalid("view: flags: some do not exist (got %#x, want 0)", c.flags)
	}
	shape, err := tensor.MakeShape(unsafe.Slice((*int64)(unsafe.Pointer(&c.shape)), c.rank)...)
	if err != nil {
		return err
	}
	strides := unsafe.Slice((*int64)(unsafe.Pointer(&c.strides)), c.rank)
	span, err := tensor.Span(tensor.DType(c.dtype), shape, strides)
	if err != nil {
		return err
	}
	k.span = cTensor{
		data: c.data, bytes: cUint64(span * int64(tensor.DType(c.dtype).Size())), memory: c.memory,
		dtype: c.dtype, rank: 1, device_kind: c.device_kind, device: c.device,
	}
	k.span.shape[0] = cInt64(span)
	var t tensor.Tensor
	if err := k.tensor(&t, &k.span, nil); err != nil {
		return err
	}
	*s, err = t.AsStrided(shape, strides, 0)
	return err
}
