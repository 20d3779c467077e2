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

// borrowed are views of the program, for an operation that outlives its call. refuse or end ends it.
type borrowed struct {
	call *call
	held []tensor.Strided // so that the program may end the numbers of their memory meanwhile
}

func borrow(owner cUint64, n *node) *borrowed {
	b := &borrowed{call: newCall(owner)}
	b.call.storages = n.live.Load().Storages()
	return b
}

// view borrows a view.
func (b *borrowed) view(c *cView) (v tensor.Strided, err error) {
	if err = b.call.view(&v, c); err == nil {
		err = v.Retain()
	}
	if err == nil {
		b.held = append(b.held, v)
	}
	return v, err
}

// refuse ends it if the call has failed. It returns why.
func (b *borrowed) refuse(err error) error {
	if err != nil {
		b.end(false)
	}
	return err
}

// end gives the views back. happened tells whether the operation has taken the owner.
func (b *borrowed) end(happened bool) {
	for i := range b.held {
		b.held[i].Release()
	}
	b.held = nil
	b.call.end(happened)
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
