package bench

import (
	"os"
	"regexp"
	"strconv"
)

// processBytes is the memory of a process without its tensors. memoryShare is the share of the free
// memory that a run may use.
const memoryShare = 0.8

var processBytes = map[Nodes]int64{GoNodes: 24 << 20, NumpyNodes: 64 << 20, TorchNodes: 320 << 20, NixlNodes: 272 << 20, GlooNodes: 320 << 20}

// memory estimates the bytes that a measurement needs.
func (o *Options) memory() int64 {
	d, err := o.withDefaults()
	if err != nil {
		return 0
	}
	push, pull, flight := int64(d.Push), int64(d.Pull), int64(d.Inflight)
	worker := flight*(push+int64(d.Servers)*pull) + int64(d.Bulk)
	server := int64(d.Workers) * flight * push
	if !d.traits().echoes || d.Work.Fresh {
		server += int64(d.Workers) * flight * pull
	}
	bare := int64(0)
	if d.limit().bare() {
		bare = int64(1+2*d.limit().servers()) * (push + pull) // a file that both map, or a buffer at each end
	}
	process := processBytes[d.Nodes]
	if d.Workload == Refit { // sources, their copies for the limit, and destinations; buffers of gloo
		return d.Refit.Bytes*int64(2*d.Refit.From.Data+2*d.Refit.To.Data*d.Refit.To.Expert) + int64(d.Workers+d.Servers)*process
	}
	return int64(d.Workers)*(worker+process) + int64(d.Servers)*(server+int64(d.Bulk)+process) + bare
}

var availableKiB = regexp.MustCompile(`(?m)^MemAvailable: +(\d+) kB`)

// freeMemory is the number of bytes that a run may use; 0 when the kernel does not report it.
func freeMemory() int64 {
	text, _ := os.ReadFile("/proc/meminfo")
	if found := availableKiB.FindSubmatch(text); found != nil {
		kib, _ := strconv.ParseFloat(string(found[1]), 64)
		return int64(kib * 1024 * memoryShare)
	}
	return 0
}
