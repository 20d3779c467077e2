package bench

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// usage is what this process has used since it started.
type usage struct {
	allocs uint64        // objects on the Go heap
	cpu    time.Duration // user and system, all threads
}

func used() usage {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	var r unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &r) // fails for a wrong argument only
	return usage{allocs: m.Mallocs, cpu: time.Duration(r.Utime.Nano() + r.Stime.Nano())}
}

// since returns what the process has used after u.
func (u usage) since() usage {
	end := used()
	return usage{allocs: end.allocs - u.allocs, cpu: end.cpu - u.cpu}
}

// measured runs a round of a node and returns its time and, of a process of its own, its usage. With
// all nodes in one process the coordinator reads the usage instead: reading it stops all goroutines.
func (o *Options) measured(round func() error) (*reply, error) {
	var before, spent usage
	if !o.inOneProcess() {
		before = used()
	}
	began := time.Now()
	err := round()
	took := time.Since(began)
	if !o.inOneProcess() {
		spent = before.since()
	}
	return &reply{Elapsed: took, Allocs: spent.allocs, CPU: spent.cpu}, err
}
