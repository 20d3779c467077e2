package bench

import (
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

// since returns what the process has used after u.
func (u usage) since() usage {
	end := used()
	return usage{at: end.at, allocs: end.allocs - u.allocs, cpu: end.cpu - u.cpu}
}

// meter measures a round at a node. With all nodes in one process the coordinator reads the usage
// instead: reading it stops all goroutines.
type meter struct {
	inside bool
	began  time.Time
	usage  usage
}

func (s *spec) meter() meter {
	m := meter{inside: s.Inside}
	if !s.Inside {
		m.usage = used()
	}
	m.began = time.Now()
	return m
}

// read stores the usage in a reply.
func (m *meter) read(r *reply) {
	r.Elapsed = time.Since(m.began)
	if !m.inside {
		spent := m.usage.since()
		r.Allocs, r.CPU = spent.allocs, spent.cpu
	}
}
