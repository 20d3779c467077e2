//go:build cgo && stepvan_devices

package main

// #include <stdint.h>
import "C"

import (
	"context"
	"sync"

	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/van/memvan"
)

// A library with the tag stepvan_devices is for the tests of bindings. Its nodes meet within the process, and reach
// each other's memory through devices that count what is registered.

var (
	devicesMu sync.Mutex
	// +checklocks:devicesMu
	devices []*memvan.Device
)

func newDevice() *memvan.Device {
	devicesMu.Lock()
	defer devicesMu.Unlock()
	d := new(memvan.Device)
	devices = append(devices, d)
	return d
}

var network = memvan.NewDeviceNetwork(newDevice)

// startFrom is a variable as in the library of programs.
var startFrom = func(ctx context.Context, environ []string, opts ...ps.Option) (*ps.Node, error) {
	return ps.StartFrom(ctx, environ, append(opts, ps.WithNetwork(network))...)
}

// stepvan_test_reached returns how many devices have all of the memory registered.
//
//export stepvan_test_reached
func stepvan_test_reached(data *byte, bytes C.uint64_t) (count C.uint64_t) {
	devicesMu.Lock()
	defer devicesMu.Unlock()
	for _, d := range devices {
		if d.Reaches(data, int(bytes)) {
			count++
		}
	}
	return count
}

// stepvan_test_settle waits until every node has registered what is due.
//
//export stepvan_test_settle
func stepvan_test_settle() {
	for _, t := range registering.all() {
		t.Settle()
	}
}
