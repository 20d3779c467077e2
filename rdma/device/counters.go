package device

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// PortCounters are the counters that the hardware keeps of a port.
type PortCounters struct {
	Device string    `json:"device"`
	Port   int       `json:"port"`
	List   []Counter `json:"counters"` // in the order of their names
}

// Counter is one of them, under the name that the driver gives it.
type Counter struct {
	Name  string `json:"name"`
	Value uint64 `json:"value"`
}

// Trouble reports whether the counter grows when something goes wrong on the way: requests that are repeated, packets
// out of order, receivers that are not ready, congestion, failures.
func (c Counter) Trouble() bool {
	return slices.ContainsFunc([]string{
		"retry", "retrans", "timeout", "out_of_seq", "seq_err", "rnr", "cnp", "ecn", "slow_restart", "discard", "error", "_err", "downed",
	}, func(part string) bool { return strings.Contains(c.Name, part) })
}

// Trouble are the counters of trouble that are not 0.
func (p PortCounters) Trouble() (list []Counter) {
	for _, c := range p.List {
		if c.Value > 0 && c.Trouble() {
			list = append(list, c)
		}
	}
	return list
}

// String reads "mlx5_0 port 1: out_of_sequence 3, rnr_nak_retry_err 1". It is about trouble only.
func (p PortCounters) String() string {
	var parts []string
	for _, c := range p.Trouble() {
		parts = append(parts, fmt.Sprintf("%s %d", c.Name, c.Value))
	}
	if len(parts) == 0 {
		parts = []string{"no retries, losses or congestion"}
	}
	return fmt.Sprintf("%s port %d: %s", p.Device, p.Port, strings.Join(parts, ", "))
}

// counterDirs hold counters, below the folder of a port. Those of InfiniBand stand beside those of the driver.
var counterDirs = []string{"hw_counters", "counters"}

// Counters reads the counters of all ports of a device. A device that is gone has none. Some drivers ask the hardware,
// so it may take milliseconds.
func (m Machine) Counters(name string) (all []PortCounters) {
	dir := path.Join(deviceDir, name, "ports")
	for _, number := range m.names(dir) {
		n, err := strconv.Atoi(number)
		if err != nil || n < 1 || n > lastPort {
			continue
		}
		p := PortCounters{Device: name, Port: n, List: []Counter{}}
		for _, sub := range counterDirs {
			p.List = append(p.List, m.counters(path.Join(dir, number, sub))...)
		}
		slices.SortFunc(p.List, func(a, b Counter) int { return strings.Compare(a.Name, b.Name) })
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b PortCounters) int { return a.Port - b.Port })
	return all
}

// counters reads a folder with a number in each file. The file lifespan says how old the others may be.
func (m Machine) counters(dir string) (list []Counter) {
	for _, name := range m.names(dir) {
		if v, err := strconv.ParseUint(m.word(path.Join(dir, name)), 10, 64); err == nil && name != "lifespan" {
			list = append(list, Counter{name, v})
		}
	}
	return list
}
