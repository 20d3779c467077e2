package bulk_test

import (
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stepvan/stepvan/internal/bulk"
	"github.com/stepvan/stepvan/internal/shm"
)

// cachedPiece is a size that copy writes into the caches.
const cachedPiece = 512 << 10

// linkPiece is the default of STEPVAN_PIECE_BYTES.
const linkPiece = 1 << 20

// kinds are the ways to copy that are compared, in turns.
var kinds = []struct {
	name string
	copy func(other *core, dst, src []byte)
}{
	{"plain", func(_ *core, dst, src []byte) { copy(dst, src) }}, // non-temporal from 1 MiB on
	{"cached", func(_ *core, dst, src []byte) {
		for n := 0; n < len(src); n += cachedPiece {
			copy(dst[n:], src[n:min(n+cachedPiece, len(src))])
		}
	}},
	{"split", func(other *core, dst, src []byte) {
		half := len(src) / 2
		other.begin(func() { copy(dst[half:], src[half:]) })
		copy(dst[:half], src[:half])
		other.await()
	}},
	{"bulk", func(_ *core, dst, src []byte) { bulk.Copy(dst, src) }},
	{"part", func(_ *core, dst, src []byte) {
		for n := 0; n < len(src); n += linkPiece {
			bulk.CopyPart(dst[n:], src[n:min(n+linkPiece, len(src))], int64(len(src)))
		}
	}},
}

// BenchmarkCopy copies what another core reads next (push), or what it has just written (pull), in a memory file. Then
// the core that uses the copy reads it: the other core after a push, this one after a pull. The figures are medians
// of the copy alone, and of copy and reading.
func BenchmarkCopy(b *testing.B) {
	other := new(core)
	go other.work()
	defer other.end()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for _, pull := range []bool{false, true} {
		name := map[bool]string{false: "push", true: "pull"}[pull]
		for _, size := range []int{64 << 10, 256 << 10, 896 << 10, 1792 << 10, 4 << 20, 8 << 20, 16 << 20, 24 << 20, 32 << 20, 64 << 20, 256 << 20} {
			b.Run(fmt.Sprintf("%s/%dKiB", name, size>>10), func(b *testing.B) { compare(b, other, size, pull) })
		}
	}
}

func compare(b *testing.B, other *core, size int, pull bool) {
	src, dst, scratch := file(b, size), file(b, size), make([]byte, 16<<10)
	write := func() {
		for n := 0; n < size; n += len(scratch) {
			copy(src[n:], scratch)
		}
	}
	read := func() {
		for n := 0; n < size; n += len(scratch) {
			copy(scratch, dst[n:])
		}
	}
	before, after := func() { write() }, func() { other.begin(read); other.await() }
	if pull {
		before, after = func() { other.begin(write); other.await() }, read
	}
	copying, both := make([][]float64, len(kinds)), make([][]float64, len(kinds))
	b.ResetTimer()
	for range max(b.N/len(kinds), 5) {
		for i, k := range kinds {
			before()
			began := time.Now()
			k.copy(other, dst, src)
			copied := time.Since(began)
			after()
			copying[i], both[i] = append(copying[i], float64(copied.Nanoseconds())), append(both[i], float64(time.Since(began).Nanoseconds()))
		}
	}
	for i, k := range kinds {
		b.ReportMetric(median(copying[i])/1000, k.name+"-us")
		if i == 0 {
			continue
		}
		b.ReportMetric(median(copying[i])/median(copying[0]), k.name+"/plain")
		b.ReportMetric(median(both[i])/median(both[0]), k.name+"+read/plain")
	}
}

func median(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)/2]
}

func file(b *testing.B, size int) []byte {
	if size == 0 {
		return nil
	}
	m, err := shm.Create("bulk", int64(size), false)
	if err != nil {
		b.Skip(err)
	}
	b.Cleanup(func() { _ = m.Close() })
	return m.Bytes()
}

// core is another core, on which a thread spins.
type core struct {
	job         func()
	begun, done atomic.Uint64
}

func (c *core) work() {
	runtime.LockOSThread()
	for n := uint64(1); ; n++ {
		for c.begun.Load() != n {
			continue
		}
		if c.job == nil {
			return
		}
		c.job()
		c.done.Store(n)
	}
}

func (c *core) begin(job func()) {
	c.job = job
	c.begun.Add(1)
}

func (c *core) await() {
	for c.done.Load() != c.begun.Load() {
		continue
	}
}

func (c *core) end() { c.begin(nil) }
