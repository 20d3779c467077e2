package device

import (
	"cmp"
	"slices"
)

// PortRef names a port of an inventory.
type PortRef struct {
	Device *Device
	Port   *Port
}

// PortOf finds the port of a choice, which Choose has made of this inventory.
func (inv *Inventory) PortOf(c Choice) (PortRef, bool) {
	for p := range inv.every {
		if p.Device.Name == c.Device && p.Port.Number == c.Port {
			return p, true
		}
	}
	return PortRef{}, false
}

// every yields all ports.
func (inv *Inventory) every(yield func(PortRef) bool) {
	for i := range inv.Devices {
		d := &inv.Devices[i]
		for j := range d.Ports {
			if !yield(PortRef{d, &d.Ports[j]}) {
				return
			}
		}
	}
}

// PortsOf finds the ports through which a network interface sends. Those of a bond belong to its members too. Hardware
// comes before software, and otherwise the device of rdmamap first.
func (inv *Inventory) PortsOf(name string) []PortRef {
	found := inv.under(name)
	if len(found) == 0 {
		if f, ok := inv.Interface(name); ok && f.Master != "" {
			found = inv.under(f.Master)
		}
	}
	return found
}

func (inv *Inventory) under(name string) (found []PortRef) {
	first := inv.mappedTo(name)
	for p := range inv.every {
		if slices.Contains(p.Port.Interfaces, name) {
			found = append(found, p)
		}
	}
	if !slices.ContainsFunc(found, func(p PortRef) bool { return p.Device.Name == first }) {
		for p := range inv.every {
			if p.Device.Name == first && len(p.Port.Interfaces) == 0 {
				found = append(found, p)
			}
		}
	}
	slices.SortStableFunc(found, func(a, b PortRef) int {
		return cmp.Or(truth(a.Device.Software)-truth(b.Device.Software), truth(b.Device.Name == first)-truth(a.Device.Name == first))
	})
	return found
}

// mappedTo is the device that rdmamap knows for an interface: "" for none.
func (inv *Inventory) mappedTo(name string) string {
	if inv.machine.DeviceOf == nil {
		return ""
	}
	device, err := inv.machine.DeviceOf(name)
	if err != nil {
		return ""
	}
	return device
}

func truth(b bool) int {
	if b {
		return 1
	}
	return 0
}
