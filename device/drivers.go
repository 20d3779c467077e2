package device

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/tensor"
)

// drivers has the drivers of this process. The map is replaced whole, so readers need no lock.
var drivers struct {
	mu    sync.Mutex
	known atomic.Pointer[map[tensor.DeviceKind]Driver]
}

// Register makes d the driver for a kind of accelerator, until unregister. Each kind has one driver. No tensor of the
// kind is in use when unregister is called.
func Register(kind tensor.DeviceKind, d Driver) (unregister func(), err error) {
	if !kind.Valid() || kind.IsHost() || d == nil {
		return nil, errs.Invalid("register: driver for %s: a driver is for a kind of accelerator that DLPack has: give one", kind)
	}
	drivers.mu.Lock()
	defer drivers.mu.Unlock()
	if known()[kind] != nil {
		return nil, errs.Invalid("register: driver for %s: the kind has a driver: unregister that first", kind)
	}
	change(func(m map[tensor.DeviceKind]Driver) { m[kind] = d })
	return sync.OnceFunc(func() {
		drivers.mu.Lock()
		defer drivers.mu.Unlock()
		change(func(m map[tensor.DeviceKind]Driver) { delete(m, kind) })
	}), nil
}

func known() map[tensor.DeviceKind]Driver {
	if m := drivers.known.Load(); m != nil {
		return *m
	}
	return nil
}

// change replaces the map of drivers. Under drivers.mu.
func change(do func(map[tensor.DeviceKind]Driver)) {
	m := maps.Clone(known())
	if m == nil {
		m = map[tensor.DeviceKind]Driver{}
	}
	do(m)
	drivers.known.Store(&m)
}

// Any reports whether a driver is registered. Without one no memory of an accelerator can be used, and none is looked
// for. Budget: one load.
func Any() bool { return len(known()) > 0 }

// Find returns the driver for a kind. The zero kind is the processor's. The error is stepvan.ErrNotSupported, and lists
// the kinds that have a driver.
func Find(kind tensor.DeviceKind) (Driver, error) {
	if kind == 0 || kind.IsHost() {
		return CPU{}, nil
	}
	m := known()
	if d := m[kind]; d != nil {
		return d, nil
	}
	have := []string{tensor.DeviceCPU.String()}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		have = append(have, k.String())
	}
	return nil, fmt.Errorf("this process has no driver for the device (got %s, want one of %s): copy the tensor to memory of the host: %w",
		kind, strings.Join(have, ", "), stepvan.ErrNotSupported)
}

// Locate returns the device that holds the memory at an address: the processor, where no driver knows better.
func Locate(address uintptr) (tensor.Device, error) {
	for _, d := range known() {
		at, err := d.Locate(address)
		if err != nil || at != (tensor.Device{}) {
			return at, err
		}
	}
	return tensor.Device{Kind: tensor.DeviceCPU}, nil
}
