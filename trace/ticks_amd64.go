package trace

import (
	"os"
	"strings"
)

// ticks reads the time-stamp counter.
//
//go:noescape
func ticks() int64

//go:noescape
func cpuid(leaf uint32) (eax, edx uint32)

const (
	powerLeaf    = 0x8000_0007
	invariantTSC = 1 << 8 // in edx: it counts at one rate, in every state of the processor
)

// steadyTicks reports whether the processor promises a steady counter, and the kernel keeps time by it,
// which it does not when the counters of the cores differ.
func steadyTicks() bool {
	if last, _ := cpuid(0x8000_0000); last < powerLeaf {
		return false
	}
	if _, edx := cpuid(powerLeaf); edx&invariantTSC == 0 {
		return false
	}
	b, err := os.ReadFile("/sys/devices/system/clocksource/clocksource0/current_clocksource")
	if err != nil {
		return false
	}
	switch strings.TrimSpace(string(b)) {
	case "tsc", "kvm-clock", "hyperv_clocksource_tsc_page":
		return true
	}
	return false
}
