package device

import (
	"fmt"
	"io/fs"
	"strings"
)

// WhyNone says why the machine has no device, and what to do, or "" when there is one.
func (inv *Inventory) WhyNone() string {
	if len(inv.Devices) > 0 {
		return ""
	}
	m := inv.machine
	if _, err := fs.Stat(m.Root, "sys/class"); err != nil {
		return "sysfs is not mounted at /sys: mount it, read-only will do"
	}
	if cards := inv.withoutRDMA(); len(cards) > 0 {
		listed := strings.Join(cards[:min(len(cards), 4)], ", ")
		if inv.Exclusive {
			return fmt.Sprintf("none is in this network namespace, and the machine has network cards with RDMA (%s): move one here with rdma dev set NAME netns NAMESPACE", listed)
		}
		return fmt.Sprintf("network cards with RDMA show no device (%s): load the driver on the host (modprobe mlx5_ib)", listed)
	}
	if _, err := fs.Stat(m.Root, deviceDir); err != nil {
		return "the kernel has no RDMA loaded (there is no /" + deviceDir + ")"
	}
	if inv.Exclusive {
		return "none is in this network namespace: move one here with rdma dev set NAME netns NAMESPACE"
	}
	return "the kernel shows none in /" + deviceDir
}
