package replay

import (
	"context"
	"errors"
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/device"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/peer"
	"github.com/stepvan/stepvan/tensor"
)

// slot is one batch in memory of the host, which collectors write to.
type slot struct {
	memory tensor.Tensor // rows by columns
	window *peer.Window
	pinned bool
	spoilt bool // somebody may still write to it for a tick that was given up. Under Ring.mu
}

// twins copies slots to their twins on an accelerator. The zero value has none: the learner reads the slots.
type twins struct {
	driver  device.Driver // nil: there are no twins
	slots   []tensor.Tensor
	learner device.Stream
	copies  device.Stream

	// Under Ring.mu.
	ready []device.Event // of the copy to each twin; nil: none was begun
	read  []device.Event // behind the kernels that read each twin; nil: none were queued since the last copy
}

// Device says where the twins of the slots are.
type Device struct {
	// Slots are one tensor for each slot of the ring, of as many bytes as a batch, all on one accelerator.
	Slots []tensor.Tensor
	// Stream is what the learner queues its kernels to. A copy to a twin waits for those that were queued before
	// [Ring.AfterTick].
	Stream device.Stream
}

// open finds the driver and makes the stream of the copies.
func (t *twins) open(d *Device, o *Options) (err error) {
	if d == nil {
		return nil
	}
	if len(d.Slots) != o.Depth {
		return errs.Invalid("ring: device: it has other slots than the ring (got %d, want %d): give one tensor for each", len(d.Slots), o.Depth)
	}
	at := d.Slots[0].Device()
	for i := range d.Slots {
		s := &d.Slots[i]
		if int64(s.Len()) != o.Rows*o.Layout.RowBytes() || s.DType() != o.Layout.DType || s.Device() != at || at.IsHost() {
			return errs.Invalid("ring: device slot %d: it is not the twin of a slot (got %v on %s, want %d bytes of %v on one accelerator): make one for each slot", i, *s, s.Device(), o.Rows*o.Layout.RowBytes(), o.Layout.DType)
		}
		if err := device.CheckAccelerator(s); err != nil {
			return fmt.Errorf("ring: device slot %d: %w", i, err)
		}
	}
	if d.Stream.Device != at {
		return errs.Invalid("ring: device: its stream is of another device (got %s, want %s): give a stream of the slots' device", d.Stream.Device, at)
	}
	driver, err := device.Find(at.Kind)
	if err != nil {
		return err
	}
	if t.copies, err = driver.NewStream(at); err != nil {
		return fmt.Errorf("ring: device: a stream for the copies: %w", err)
	}
	t.driver, t.slots, t.learner = driver, d.Slots, d.Stream
	t.ready, t.read = make([]device.Event, o.Depth), make([]device.Event, o.Depth)
	return nil
}

// submit begins the copy of a slot to its twin. It waits for the kernels that read the twin. Under Ring.mu.
func (t *twins) submit(i int, from *tensor.Tensor) error {
	if t.driver == nil {
		return nil
	}
	t.clear(i)
	if t.read[i] != nil {
		err := t.driver.Follow(t.copies, t.read[i])
		t.read[i].Close()
		t.read[i] = nil
		if err != nil {
			return err
		}
	}
	if err := t.driver.FromHost(t.copies, t.slots[i].Address(), from.Bytes()); err != nil {
		return err
	}
	e, err := t.driver.Record(t.copies)
	t.ready[i] = e
	return err
}

// clear forgets the copy to a twin, which has ended. Under Ring.mu.
func (t *twins) clear(i int) {
	if t.driver != nil && t.ready[i] != nil {
		t.ready[i].Close()
		t.ready[i] = nil
	}
}

// query reports whether the copy to a twin has ended. Under Ring.mu.
func (t *twins) query(i int) (bool, error) {
	if t.driver == nil {
		return true, nil
	}
	if t.ready[i] == nil {
		return false, nil
	}
	return t.ready[i].Query()
}

// gaveBack notes the kernels that read a twin. Under Ring.mu.
func (t *twins) gaveBack(i int) (err error) {
	if t.driver == nil {
		return nil
	}
	if t.read[i] != nil {
		t.read[i].Close()
	}
	t.read[i], err = t.driver.Record(t.learner)
	return err
}

// close waits for the copies, and ends the stream. It may be called again after it gave up.
func (t *twins) close(ctx context.Context) error {
	if t.driver == nil {
		return nil
	}
	for i, e := range t.ready {
		if e == nil {
			continue
		}
		if err := device.Await(e, ctx.Err); err != nil && ctx.Err() != nil {
			return errs.Late("close a ring: a copy to the device still runs: close it again", ctx.Err())
		}
		t.clear(i)
	}
	for i, e := range t.read {
		if e != nil {
			e.Close()
			t.read[i] = nil
		}
	}
	err := t.driver.CloseStream(t.copies)
	t.driver = nil
	return err
}

// slotMemory makes and frees the slots of a ring.
type slotMemory struct{ ring *Ring }

// newSlot makes a slot and exposes it.
func (x slotMemory) newSlot(i int) (_ *slot, err error) {
	o := &x.ring.opt
	region, err := o.Memory.AllocFile(int(o.Rows * o.Layout.RowBytes()))
	if err != nil {
		return nil, fmt.Errorf("ring: slot %d: %w", i, err)
	}
	s := &slot{}
	defer func() {
		if err != nil {
			err = errors.Join(err, x.freeSlot(context.Background(), s), region.Close())
		}
	}()
	memory, err := tensor.FromRegion(region, 0, o.Layout.DType, tensor.ShapeOf(o.Rows, o.Layout.Width()))
	if err != nil {
		return nil, err
	}
	if x.ring.pinner != nil {
		if err := x.ring.pinner.Pin(memory.Bytes()); err != nil {
			return nil, fmt.Errorf("ring: slot %d: the driver does not register its %d bytes: %w", i, memory.Len(), err)
		}
		s.pinned = true
	}
	s.memory = memory
	s.window, err = x.ring.peer.Expose(memory.Strided(), peer.WindowOptions{Rights: peer.RightWrite, Peers: o.Collectors, Note: listener(x).noted})
	return s, err
}

// freeSlot gives the memory of a slot back, except its region. It waits until nobody reaches the memory, and may be
// called again after it gave up.
func (x slotMemory) freeSlot(ctx context.Context, s *slot) error {
	if s.window != nil {
		if err := s.window.Close(ctx); err != nil && !errors.Is(err, stepvan.ErrClosed) {
			return err
		}
		s.window = nil
	}
	if s.pinned {
		s.pinned = false
		return x.ring.pinner.Unpin(s.memory.Bytes())
	}
	return nil
}

// dropSlot is freeSlot, and frees the region too.
func (x slotMemory) dropSlot(ctx context.Context, s *slot) error {
	if err := x.freeSlot(ctx, s); err != nil {
		return err
	}
	if region := s.memory.Region(); region != nil {
		return region.Close()
	}
	return nil
}
