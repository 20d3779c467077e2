package memvan

import (
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/van"
)

var _ van.AcceleratorRegistrar = (*memVan)(nil)

// RegisterAccelerator implements van.AcceleratorRegistrar.
func (n *memVan) RegisterAccelerator(mem []byte, fd int, offset int64) error {
	d := n.opt.Device
	if d == nil || !n.opt.Offload || n.caps.Views {
		return fmt.Errorf("this van has no device that moves payload: %w", stepvan.ErrNotSupported)
	}
	bytes, err := d.mapAccelerator(mem, fd, offset)
	if err != nil {
		return err
	}
	if err := n.Register(mem); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.accelerators == nil {
		d.accelerators = map[extent][]byte{}
	}
	d.accelerators[extentOf(mem)] = bytes
	return nil
}

// mapAccelerator returns the bytes of memory of an accelerator as the device sees them.
func (d *Device) mapAccelerator(mem []byte, fd int, offset int64) ([]byte, error) {
	var b []byte
	switch {
	case fd >= 0 && d.DMABuf != nil:
		b = d.DMABuf(fd, offset, len(mem))
	case fd < 0 && d.Peer != nil:
		b = d.Peer(extentOf(mem).start, len(mem))
	}
	if len(b) != len(mem) {
		return nil, fmt.Errorf("the device does not reach %d bytes of the accelerator: %w", len(mem), stepvan.ErrNotSupported)
	}
	return b, nil
}

// bytes returns what the device reads and writes for mem, which is registered: the bytes of an accelerator where mem
// has its addresses.
func (d *Device) bytes(mem []byte) []byte {
	if d == nil || len(mem) == 0 {
		return mem
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	at := extentOf(mem)
	for x, b := range d.accelerators {
		if d.registered[x] > 0 && x.start <= at.start && at.end <= x.end {
			return b[at.start-x.start:][:len(mem)]
		}
	}
	return mem
}

// Accelerators returns how much memory of accelerators is registered, in pieces.
func (d *Device) Accelerators() (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for x := range d.accelerators {
		n += d.registered[x]
	}
	return n
}
