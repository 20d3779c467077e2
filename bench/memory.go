package bench

import (
	"bytes"
	"fmt"
	"os"
)

// Memory of a process without its tensors, and the share of the free memory that a run may use.
const (
	processBytes = 24 << 20
	pythonBytes  = 64 << 20
	torchBytes   = 320 << 20
	nixlBytes    = 272 << 20
	memoryShare  = 0.8
)

// memory estimates the bytes that a measurement needs.
func (o *Options) memory() int64 {
	d, err := o.withDefaults()
	if err != nil {
		return 0
	}
	push, pull, flight := int64(d.Push), int64(d.Pull), int64(d.Inflight)
	worker := flight*(push+int64(d.Servers)*pull) + int64(d.Bulk)
	server := int64(d.Workers) * flight * push
	if !d.echoes() {
		server += int64(d.Workers) * flight * pull
	}
	bare := int64(0)
	if d.limit().bare() {
		bare = int64(1+2*d.limit().servers()) * (push + pull) // a file that both map, or a buffer at each end
	}
	process := d.Nodes.memory()
	return int64(d.Workers)*(worker+process) + int64(d.Servers)*(server+int64(d.Bulk)+process) + bare
}

// memory of a process without its tensors.
func (n Nodes) memory() int64 {
	switch n {
	case NumpyNodes:
		return pythonBytes
	case TorchNodes:
		return torchBytes
	case NixlNodes:
		return nixlBytes
	}
	return processBytes
}

// freeMemory is the number of bytes that a run may use; 0 when the kernel does not report it.
func freeMemory() int64 {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(text) {
		var kib int64
		if n, _ := fmt.Sscanf(string(line), "MemAvailable: %d kB", &kib); n == 1 {
			return int64(float64(kib<<10) * memoryShare)
		}
	}
	return 0
}
