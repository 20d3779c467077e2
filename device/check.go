package device

import (
	"fmt"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/tensor"
)

// Check returns why an operation cannot use t, or nil. Beside the errors of [tensor.Tensor.Check] it returns those of
// CheckHost and CheckAccelerator. Budget: 0 allocations without an error.
func Check(t *tensor.Tensor) error {
	if err := t.Check(); err != nil {
		return err
	}
	if t.Device().IsHost() {
		return CheckHost(t)
	}
	return CheckAccelerator(t)
}

// CheckAccelerator refuses a tensor of an accelerator that has no driver, and one whose address is not memory of the
// device that its program has named. The error does not name the tensor.
func CheckAccelerator(t *tensor.Tensor) error {
	d := t.Device()
	driver, err := Find(d.Kind)
	if err != nil || t.Len() == 0 {
		return err
	}
	first := t.Address()
	for _, address := range []uintptr{first, first + uintptr(t.Len()) - 1} {
		at, err := driver.Locate(address)
		if err != nil {
			return fmt.Errorf("its driver does not know the memory at %#x: %w", address, err)
		}
		if at == (tensor.Device{}) {
			at, err = Locate(address)
			if err != nil {
				return err
			}
		}
		if at != d {
			return errs.Invalid("the memory at %#x is not what the tensor says (got %s, want %s): name the device that holds it", address, at, d)
		}
	}
	return nil
}

// CheckHost refuses foreign memory that its program has given as memory of the host, and that an accelerator holds. It
// asks nobody about memory of stepvan or of the Go heap, and where no driver is registered. Budget: 0 allocations
// without an error.
func CheckHost(t *tensor.Tensor) error {
	if !Any() || t.Len() == 0 || !t.Foreign() {
		return nil
	}
	at, err := Locate(t.Address())
	if err == nil && !at.IsHost() {
		err = errs.Invalid("the memory at %#x is not what the tensor says (got %s, want cpu): name the device that holds it", t.Address(), at)
	}
	return err
}
