package reach

import (
	"strings"

	"github.com/stepvan/stepvan/rdma/device"
)

// PortCounters tells what the ports of devices say of trouble. It is empty where they say nothing.
func PortCounters(devices []string) string {
	var parts []string
	for _, name := range devices {
		for _, p := range device.ThisMachine().Counters(name) {
			parts = append(parts, p.String())
		}
	}
	return strings.Join(parts, "; ")
}
