package work

import (
	"math/rand/v2"
	"time"

	"github.com/stepvan/stepvan/internal/sys"
	"github.com/stepvan/stepvan/trace"
)

// draws gives the times of exchanges, one after the other. Two of the same Times give the same.
type draws struct {
	times Times
	rand  *rand.Rand // nil: all times are the same
	fixed time.Duration
}

// Seeds of draws. A fixed seed makes runs alike.
const seedHigh, seedLow = 0x73746570, 0x76616e

func newDraws(t Times) draws {
	if d, constant := t.Constant(); constant {
		return draws{fixed: d}
	}
	return draws{times: t, rand: rand.New(rand.NewPCG(seedHigh, seedLow))}
}

// next is the time of the next exchange.
func (d *draws) next() time.Duration {
	if d.rand == nil {
		return d.fixed
	}
	part := d.choose()
	return part.Least + time.Duration(d.rand.Float64()*float64(part.Most-part.Least))
}

// choose chooses a part by its share.
func (d *draws) choose() *Part {
	last := len(d.times) - 1
	if last == 0 {
		return &d.times[0]
	}
	at := d.rand.Float64()
	for i := range last {
		if at -= d.times[i].Share; at < 0 {
			return &d.times[i]
		}
	}
	return &d.times[last]
}

// compute keeps the core busy for a time, as a computation does. It does not yield.
func compute(d time.Duration) {
	for end := trace.Now() + int64(d); trace.Now() < end; {
	}
}

// sleep lets a time pass in the kernel. Go's own timers would round it to milliseconds.
func sleep(d time.Duration) {
	for end := trace.Now() + int64(d); ; {
		left := end - trace.Now()
		if left <= 0 {
			return
		}
		sys.Sleep(nil, time.Duration(left), false)
	}
}
