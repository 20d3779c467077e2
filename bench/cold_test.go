package bench

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/stepvan/stepvan/trace"
)

const lineBytes = 64

// line is a cache line that names the next one.
type line struct {
	next *line
	_    [lineBytes - unsafe.Sizeof(uintptr(0))]byte
}

// ringOf returns a ring of so many lines in random order, which lie so many lines apart.
func ringOf(lines, apart int) *line {
	memory := make([]line, lines*apart)
	order := rand.Perm(lines)
	for i, at := range order {
		memory[at*apart].next = &memory[order[(i+1)%lines]*apart]
	}
	return &memory[0]
}

// BenchmarkColdCaches follows a ring of lines after it has computed for some time in registers. What it takes longer
// than without computing, others have evicted meanwhile: other processes, and the neighbours of a virtual machine. No
// exchange after such a time is faster than its share of these lines.
func BenchmarkColdCaches(b *testing.B) {
	for name, ring := range map[string]*line{
		"512 lines":              ringOf(512, 1),
		"128 lines, a page each": ringOf(128, os.Getpagesize()/lineBytes+1),
	} {
		for _, d := range []time.Duration{0, 100 * time.Microsecond, 300 * time.Microsecond, time.Millisecond} {
			b.Run(fmt.Sprintf("%s/%v", name, d), func(b *testing.B) {
				var took []int64
				at := ring
				for began := trace.Now(); trace.Now() < began+int64(10*time.Millisecond); at = at.next { // at first all is cold
				}
				at = ring
				for b.Loop() {
					began := trace.Now()
					for began+int64(d) > trace.Now() {
					}
					began = trace.Now()
					for at = at.next; at != ring; at = at.next {
					}
					took = append(took, trace.Now()-began)
				}
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)/2])/1000, "p50-us")
				b.ReportMetric(float64(took[len(took)*9/10])/1000, "p90-us")
			})
		}
	}
}
