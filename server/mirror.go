package server

import (
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/registry"
	"github.com/stepvan/stepvan/tensor"
)

// mirror is memory of the host that receives pushes for a buffer of an accelerator, unless a device writes them to the
// accelerator. arrivals copies them from there.
type mirror struct {
	accelerator tensor.Tensor // the program's buffer
	held        *registry.Registration
	window      *tensor.Window // of the memory of the host; its end gives back both
}

// makeMirror has memory of the host receive the pushes where the program has given memory of an accelerator.
func (b *ReceiveBuffer) makeMirror() error {
	t, s := b.tensor, b.s
	if t.Device().IsHost() {
		return nil
	}
	full := func() error {
		return fmt.Errorf("the pool has no room for a copy of %d bytes in memory of the host: raise STEPVAN_POOL_BYTES: %w", t.Len(), stepvan.ErrNoMemory)
	}
	if err := t.Retain(); err != nil {
		return err
	}
	region, err := s.stager.Memory(t.Device(), t.Len(), full)
	if err != nil {
		t.Release()
		return err
	}
	m := &mirror{accelerator: t}
	m.window = tensor.NewWindow(func() {
		s.stager.Put(region)
		t.Release()
	})
	b.tensor, err = tensor.FromRegion(m.window.Show(region.Bytes()), 0, t.DType(), t.Shape())
	if err == nil {
		m.held, err = s.transport.Registry.Register(t)
	}
	if err != nil {
		m.end()
		return err
	}
	b.mirror = m
	return nil
}

// end gives back the memory when nothing uses it any more. The caller ends a mirror once; a nil one has nothing.
func (m *mirror) end() {
	if m != nil {
		m.window.Shut()
	}
}

// part makes the tensor of the accelerator for a push into chunk c.
func (m *mirror) part(c *chunk, push *tensor.Tensor) (tensor.Tensor, error) {
	whole := &m.accelerator
	return tensor.FromRegion(whole.Region(), whole.Offset()+c.offset, push.DType(), push.Shape())
}

// sharesMemory reports whether the chunk has memory of b.
func (c *chunk) sharesMemory(b *ReceiveBuffer) bool {
	if c.buffer.mirror != nil && b.mirror != nil {
		return overlap(c.onAccelerator(), b.mirror.accelerator.Addresses())
	}
	return overlap(c.mem, b.tensor.Bytes())
}
