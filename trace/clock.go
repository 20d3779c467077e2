package trace

import "time"

// origin ties the monotonic clock to wall time once per process. Processes of
// one machine agree to well below a microsecond unless the wall clock is
// stepped between their starts.
var (
	origin   = time.Now()
	originNS = origin.UnixNano()
)

// Now returns the time in ns since 1970. It does not follow steps of the wall clock after the start of the process. Any
// goroutine may call it. Budget: 10 ns and 0 allocations, with three system calls every 4 ms. Where the processor's
// tick counter is not steady, Now reads the kernel's clock, which takes 27 ns.
func Now() int64 {
	if ns, ok := counted.read(ticks()); ok {
		return ns
	}
	return counted.anchor()
}

// kernelNow is Now by the kernel's clock.
func kernelNow() int64 { return originNS + int64(time.Since(origin)) }
