package registry

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/stepvan/stepvan"
	drivers "github.com/stepvan/stepvan/device"
	"github.com/stepvan/stepvan/tensor"
)

// Accelerators is implemented by devices that may reach memory of accelerators. It is van.AcceleratorRegistrar.
type Accelerators interface {
	RegisterAccelerator(mem []byte, fd int, offset int64) error
}

// access is how the devices reach memory of an accelerator.
type access uint8

const (
	byDMABuf access = iota // the driver exports it as a dma-buf
	byPeer                 // its address means something to the devices
	noAccess
)

var accessNames = [...]string{byDMABuf: "a dma-buf", byPeer: "peer memory"}

// registerAccelerator returns the entry of memory of d. An error that is stepvan.ErrNotSupported says that no device
// reaches it. It depends on the allocator of the memory as well, so each registration begins with a page of it.
func (r *Registry) registerAccelerator(d tensor.Device, mem []byte) (*entry, error) {
	driver, err := drivers.Find(d.Kind)
	if err != nil {
		return nil, err
	}
	how, err := r.tryAccess(d, driver, mem[:min(len(mem), os.Getpagesize())])
	if err != nil {
		if errors.Is(err, stepvan.ErrNotSupported) {
			r.noteAccess(d, how, err)
		}
		return nil, err
	}
	e, first, err := r.enter(mem, tensor.NewFileNumber(), false)
	if err != nil {
		return nil, err
	}
	if !first {
		<-e.settled
		return e, e.err
	}
	e.err = r.askFor(d, driver, how, mem)
	r.settle(e)
	if e.err == nil {
		r.noteAccess(d, how, nil)
	}
	return e, e.err
}

// noteAccess says once in the log how the devices reach memory of d. why says why they do not.
func (r *Registry) noteAccess(d tensor.Device, how access, why error) {
	r.mu.Lock()
	said := r.said[d]
	r.said[d] = true
	r.mu.Unlock()
	switch {
	case said:
	case how == noAccess:
		r.streams.log.Info().Stringer("device", d).AnErr("why", why).
			Msg("no RDMA device reaches this memory of the accelerator: it travels by copies through pinned memory of the host")
	default:
		r.streams.log.Info().Stringer("device", d).Str("by", accessNames[how]).
			Msg("RDMA devices reach memory of the accelerator that is registered")
	}
}

// tryAccess tries with a page what works. If nothing does, the error says why.
func (r *Registry) tryAccess(d tensor.Device, driver drivers.Driver, page []byte) (access, error) {
	if err := driver.Flush(d); err != nil {
		return noAccess, fmt.Errorf("%s does not promise that it sees what others write: %w", d, err)
	}
	var all error
	for how := byDMABuf; how < noAccess; how++ {
		err := r.askFor(d, driver, how, page)
		switch {
		case err == nil:
			return how, r.deregisterAll(page)
		case !errors.Is(err, stepvan.ErrNotSupported):
			return noAccess, err // another attempt may do better
		}
		all = errors.Join(all, fmt.Errorf("%s: %w", accessNames[how], err))
	}
	return noAccess, all
}

// askFor registers memory of an accelerator with all devices, or with none. It blocks.
func (r *Registry) askFor(d tensor.Device, driver drivers.Driver, how access, mem []byte) error {
	fd, offset := -1, int64(0)
	if how == byDMABuf {
		b, err := driver.Export(d, addressOf(mem), int64(len(mem)))
		if err != nil {
			return err
		}
		defer func() { _ = syscall.Close(b.FD) }()
		fd, offset = b.FD, b.Offset
	}
	for i, device := range r.devices {
		err := fmt.Errorf("the van cannot register it: %w", stepvan.ErrNotSupported)
		if a, ok := device.(Accelerators); ok {
			err = a.RegisterAccelerator(mem, fd, offset)
		}
		if err != nil {
			for _, other := range r.devices[:i] {
				err = errors.Join(err, other.Deregister(mem))
			}
			return fmt.Errorf("%d bytes of %s at %#x: %w", len(mem), d, addressOf(mem), err)
		}
	}
	return nil
}

func addressOf(b []byte) uintptr { return extentOf(b).start }
