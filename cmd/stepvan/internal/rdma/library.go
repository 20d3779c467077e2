package rdma

import (
	"errors"
	"slices"
	"syscall"

	"github.com/stepvan/stepvan/internal/verbs"
	"github.com/stepvan/stepvan/rdma/device"
)

// Library is what the libraries of RDMA say.
type Library struct {
	Err       error    // why they cannot be used; then the rest says nothing
	Providers []string // the devices that have one
	ForkSafe  bool     // a fork copies registered memory; otherwise it is missing in the child

	library *verbs.Library
}

// Load opens the libraries.
func Load() *Library {
	l, err := verbs.Load(verbs.Options{})
	if err != nil {
		return &Library{Err: err}
	}
	all, err := l.Devices()
	if err != nil && !errors.Is(err, syscall.ENOSYS) { // a kernel without RDMA, and no mistake of the library
		return &Library{Err: err}
	}
	out := &Library{ForkSafe: l.Fork() == verbs.ForkCopies, library: l}
	for _, d := range all {
		out.Providers = append(out.Providers, d.Name)
	}
	return out
}

// Provides reports whether programs can open a device.
func (l *Library) Provides(name string) bool { return slices.Contains(l.Providers, name) }

// PathMTU asks a device for the MTUs of a port.
func (l *Library) PathMTU(name string, port int) (active, greatest int, err error) {
	if l.Err != nil {
		return 0, 0, l.Err
	}
	d, err := l.library.Open(name)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = d.Close() }()
	a, err := d.Port(port)
	return a.MTU, a.MaxMTU, err
}

// Read takes the inventory of this machine, with what the devices say of themselves.
func (l *Library) Read() (*device.Inventory, error) {
	m := device.ThisMachine()
	if l.Err == nil {
		m.PathMTU = l.PathMTU
	}
	return m.Read()
}
