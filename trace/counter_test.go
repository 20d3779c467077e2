package trace

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// machine has a counter, and a kernel clock that runs a little too fast or too slow.
type machine struct {
	ticks, ns float64
	hertz     float64
	slew      float64 // of the kernel's clock
}

func (m *machine) point() point { return point{int64(m.ticks), int64(m.ns)} }

func (m *machine) pass(d time.Duration) {
	m.ticks += m.hertz * d.Seconds()
	m.ns += float64(d) * (1 + m.slew)
}

// now is Now on m.
func (m *machine) now(c *counter) (ns int64, counted bool) {
	if ns, ok := c.read(int64(m.ticks)); ok {
		return ns, true
	}
	return c.take(m.point()), false
}

const ppm = 1e-6

func TestTheCounterFollowsTheKernelAndNeverGoesBack(t *testing.T) {
	for name, hertz := range map[string]float64{"25 MHz": 25e6, "2.6 GHz": 2.6e9} {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			m, c := &machine{ticks: 1e12, ns: 1.7e18, hertz: hertz}, &counter{steady: true}
			var last int64
			counted := 0
			for i := range 200_000 {
				if i%5000 == 0 {
					m.slew = (r.Float64() - 0.5) * 1000 * ppm
				}
				m.pass(time.Duration(r.IntN(100_000)))
				if i%1000 == 0 {
					m.pass(time.Duration(r.IntN(int(time.Second)))) // the program does something else
				}
				ns, ok := m.now(c)
				if off := ns - int64(m.ns); ns < last || off < -5000 || off > 5000 {
					t.Fatalf("step %d: %d ns after the last time, %d ns from the kernel's", i, ns-last, off)
				}
				last = ns
				if ok {
					counted++
				}
			}
			require.Greater(t, counted, 150_000, "most reads need not ask the kernel")
		})
	}
}

func TestTheCounterStartsAgainAfterASleep(t *testing.T) {
	for name, upset := range map[string]func(*machine){
		"the clock stood still":  func(m *machine) { m.ticks += 100e9 },
		"the ticks were reset":   func(m *machine) { m.ticks = 5 },
		"the ticks stood still":  func(m *machine) { m.ns += 100e9 },
		"the ticks change speed": func(m *machine) { m.hertz *= 1.5; m.pass(time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			m, c := &machine{ticks: 1e12, ns: 1.7e18, hertz: 3e9}, &counter{steady: true}
			run := func() (counted bool) {
				for range 1000 {
					m.pass(100 * time.Microsecond)
					var ns int64
					ns, counted = m.now(c)
					require.InDelta(t, 0, float64(ns-int64(m.ns)), 5000)
				}
				return counted
			}
			run()
			_, ok := c.read(int64(m.ticks))
			require.True(t, ok)
			upset(m)
			m.pass(10 * time.Millisecond)
			run()
			_, ok = c.read(int64(m.ticks))
			require.True(t, ok, "the counter is not used again")
		})
	}
}

func TestAnUnsteadyCounterIsNotUsed(t *testing.T) {
	c := &counter{}
	for range 10 {
		before := kernelNow()
		require.GreaterOrEqual(t, c.anchor(), before)
		_, ok := c.read(ticks())
		require.False(t, ok)
	}
}

// Now lies between two reads of the kernel's clock, however long the thread was away between them.
func TestNowIsTheKernelsTime(t *testing.T) {
	const slack = int64(50 * time.Microsecond)
	for end := kernelNow() + int64(50*time.Millisecond); kernelNow() < end; {
		before := kernelNow()
		n := Now()
		after := kernelNow()
		require.GreaterOrEqual(t, n, before-slack)
		require.LessOrEqual(t, n, after+slack)
	}
}
