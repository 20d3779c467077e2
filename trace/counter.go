package trace

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// counted is the clock of the process.
var counted = &counter{steady: steadyTicks(), offset: monotonicOffset()}

// counter makes time of the processor's counter. An anchor is a pair of a counter value and a time.
// It holds for a few ms. Then the counter takes the next anchor from the kernel's clock, and so
// follows whatever the kernel does to that clock (NTP). Within an anchor it can be off by what the
// kernel changes meanwhile: some ns, and 2 us at the kernel's limit of 500 ppm.
type counter struct {
	// The anchor. Writers make seq odd meanwhile.
	seq  atomic.Uint32
	from atomic.Int64  // its ticks
	at   atomic.Int64  // its time, ns
	rate atomic.Uint64 // ns per tick, in 2^-32
	span atomic.Uint64 // ticks that it holds; 0: the counter has no anchor

	steady bool  // the counter can be used
	offset int64 // of the kernel's monotonic clock from Now

	mu     sync.Mutex
	older  point // where the rate is measured from, between half a second and a second ago when Now is called all the time
	newer  point // the next one to measure from
	before float64
}

// point is a moment by both clocks.
type point struct{ ticks, ns int64 }

const (
	anchorSpan = 4 * time.Millisecond
	// baseline is how long the counter is watched before it is used.
	baseline = 10 * time.Millisecond
	// longBase is when a later point to measure the rate from is taken.
	longBase = 500 * time.Millisecond
	// tolerance is how much rates may differ. NTP makes less than 1e-3 in either
	// direction; more is a machine that slept, or moved.
	tolerance = 2e-3
)

// read is the time at t ticks, if the anchor tells.
func (c *counter) read(t int64) (ns int64, ok bool) {
	seq := c.seq.Load()
	d := uint64(t - c.from.Load())
	ns = c.at.Load() + int64(d*c.rate.Load()>>32)
	ok = d < c.span.Load() && seq&1 == 0 && c.seq.Load() == seq
	return ns, ok
}

// anchor is the time by the kernel's clock, which it takes an anchor of unless another goroutine does.
func (c *counter) anchor() int64 {
	if !c.steady || !c.mu.TryLock() {
		return kernelNow()
	}
	defer c.mu.Unlock()
	return c.take(c.sample())
}

// sample reads both clocks at the same moment.
func (c *counter) sample() point {
	t, ns := readBoth(ticks, monotonic)
	return point{t, ns + c.offset}
}

// monotonicOffset is what Now is ahead of the kernel's monotonic clock.
func monotonicOffset() int64 {
	now, ns := readBoth(kernelNow, monotonic)
	return now - ns
}

// readBoth reads two clocks at the same moment: the best of three, since the thread may lose its core between the
// reads.
func readBoth(outer, inner func() int64) (a, b int64) {
	least := int64(math.MaxInt64)
	for range 3 {
		before := outer()
		ns := inner()
		if d := outer() - before; d < least {
			least, a, b = d, before+d/2, ns
		}
	}
	return a, b
}

// take makes an anchor of p, once the rate is known, and returns the time at p. mu is held.
func (c *counter) take(p point) int64 {
	rate := float64(p.ns-c.older.ns) / float64(p.ticks-c.older.ticks)
	switch {
	case c.older == point{}, p.ticks <= c.older.ticks, c.before != 0 && math.Abs(rate/c.before-1) > tolerance:
		c.older, c.newer, c.before = p, p, 0
		c.store(p, 0, 0)
		return p.ns
	case p.ns-c.older.ns < int64(baseline):
		return p.ns
	}
	c.before = rate
	if p.ns-c.newer.ns > int64(longBase) {
		c.older, c.newer = c.newer, p
	}
	span := float64(anchorSpan) / rate
	// Where the last anchor ran ahead, this one begins ahead too and runs slower, so that time never goes back.
	if ahead := c.reached(p.ticks) - p.ns; ahead > 0 && ahead < int64(anchorSpan)/8 {
		p.ns += ahead
		rate -= float64(ahead) / span
	}
	c.store(p, rate, span)
	return p.ns
}

// reached is the latest time that was read of the anchor until t.
func (c *counter) reached(t int64) int64 {
	d := min(uint64(t-c.from.Load()), c.span.Load())
	return c.at.Load() + int64(d*c.rate.Load()>>32)
}

func (c *counter) store(p point, rate, span float64) {
	c.seq.Add(1)
	c.from.Store(p.ticks)
	c.at.Store(p.ns)
	c.rate.Store(uint64(rate * (1 << 32)))
	c.span.Store(uint64(span))
	c.seq.Add(1)
}

// monotonic reads the kernel's clock. A system call, so that the fake time of tests does not reach the anchors.
func monotonic() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0 // the clock exists on every kernel
	}
	return ts.Nano()
}
