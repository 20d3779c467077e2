package bench

import (
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// usage is what this process has used since it started.
type usage struct {
	at     time.Time
	allocs uint64        // objects on the Go heap
	cpu    time.Duration // user and system, all threads
}

func used() usage {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	var r unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &r) // fails for a wrong argument only
	return usage{
		at: time.Now(), allocs: m.Mallocs,
		cpu: time.Duration(r.Utime.Nano() + r.Stime.Nano()),
	}
}

// since adds to the reply of a round what the process has used from then on.
func (u usage) since(r *reply) {
	end := used()
	r.PID = os.Getpid()
	r.Elapsed, r.Allocs, r.CPU = end.at.Sub(u.at), end.allocs-u.allocs, end.cpu-u.cpu
}
