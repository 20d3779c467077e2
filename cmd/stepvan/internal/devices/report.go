package devices

import (
	"github.com/stepvan/stepvan/cmd/stepvan/internal/rdma"
	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/internal/reach"
	"github.com/stepvan/stepvan/rdma/device"
)

// Report is what Print and JSON write.
type Report struct {
	*device.Inventory
	Library      string                `json:"library"` // "": it works; else why not
	Providers    []string              `json:"providers"`
	Accelerators []Near                `json:"accelerators"`
	Selection    *device.Selection     `json:"selection"`
	Counters     []device.PortCounters `json:"counters"`          // of every port
	Mistake      string                `json:"mistake,omitempty"` // of the settings, which contradict the machine
	None         string                `json:"none,omitempty"`    // why a node uses no device
}

// Near is an accelerator with the device that is nearest to it.
type Near struct {
	device.Accelerator
	Device   string           `json:"device"`
	Nearness device.Proximity `json:"nearness"`
}

// New makes the report of an inventory, for a node with settings s.
func New(s *config.Settings, inv *device.Inventory, l *rdma.Library, lookup func(string) (string, bool)) *Report {
	r := &Report{Inventory: inv, Providers: append([]string{}, l.Providers...), Accelerators: []Near{}, Counters: []device.PortCounters{}}
	if l.Err != nil {
		r.Library = l.Err.Error()
	}
	for _, a := range inv.Accelerators() {
		n := Near{Accelerator: a}
		if d, at := inv.Nearest(a); d != nil {
			n.Device, n.Nearness = d.Name, at.Proximity
		}
		r.Accelerators = append(r.Accelerators, n)
	}
	selection, err := reach.Devices(s, inv, lookup)
	if err != nil {
		r.Mistake, r.Selection = err.Error(), &device.Selection{Choices: []device.Choice{}, Skipped: []device.Skipped{}}
		return r
	}
	r.Selection, r.None = selection, selection.Why(inv)
	return r
}

// Counters reads those of every port of this machine.
func Counters(inv *device.Inventory) []device.PortCounters {
	all := []device.PortCounters{}
	for i := range inv.Devices {
		all = append(all, device.ThisMachine().Counters(inv.Devices[i].Name)...)
	}
	return all
}

// choice finds the choice for a port.
func (r *Report) choice(name string, port int) *device.Choice {
	for i := range r.Selection.Choices {
		if c := &r.Selection.Choices[i]; c.Device == name && c.Port == port {
			return c
		}
	}
	return nil
}
