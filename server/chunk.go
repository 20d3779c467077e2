package server

import (
	"fmt"
	"unsafe"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/tensor"
)

// chunk is the memory that a registration gives to one (worker, key).
type chunk struct {
	reg        *ReceiveBuffer
	worker     *remote
	key        tensor.Key
	generation uint32
	offset     int64  // in the registered tensor
	mem        []byte // of the registered tensor
	user       *incoming

	grant  link.GrantID  // through which the worker writes by itself; 0 when it does not
	lentTo *link.Session // in which it does
}

// start is the address of the first byte.
func start(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// take gives the chunk to a push, from its first byte until the respond.
func (c *chunk) take(in *incoming, d *wire.Descriptor) error {
	if d.Bytes > uint64(len(c.mem)) {
		return errs.Invalid("the push of key %d has %d bytes, the buffer registered for it and %s has %d; register a larger one", d.Key, d.Bytes, c.worker.name, len(c.mem))
	}
	if start(c.mem)%uintptr(d.DType.Align()) != 0 {
		return errs.Invalid("the buffer registered for key %d and %s is not aligned for %s", d.Key, c.worker.name, d.DType)
	}
	if c.user != nil && c.user.early {
		return fmt.Errorf("the push of key %d came when the server had begun to stop", d.Key)
	}
	// While an answer is on its way its worker may have it already, and push again.
	if c.user != nil && c.user.stage != answering {
		return errs.Invalid("the push of key %d came before the last one was answered", d.Key)
	}
	c.user = in
	return nil
}

// view makes t the first bytes of the chunk, as the pushed tensor.
func (c *chunk) view(t *tensor.Tensor, d *wire.Descriptor) (err error) {
	whole := &c.reg.tensor
	if r := whole.Region(); r != nil {
		return t.SetRegion(r, whole.Offset()+c.offset, d.DType, &d.Shape)
	}
	*t, err = tensor.FromBytes(d.DType, d.Shape, c.mem[:d.Bytes])
	return err
}
