package bulk_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stepvan/stepvan/internal/bulk"
)

// BenchmarkExchange copies a push on this core, the worker's, and then the response on this core or on the server's. In
// the fresh cases both sides write what they send anew, and read what they get. The figures are medians of the whole:
// worker-us when the worker copies the response, server/worker when the server does, by turns.
func BenchmarkExchange(b *testing.B) {
	server := new(core)
	go server.work()
	defer server.end()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for _, fresh := range []bool{false, true} {
		name := map[bool]string{false: "plain", true: "fresh"}[fresh]
		for _, push := range []int{0, 128 << 10, 256 << 10, 512 << 10, 896 << 10, 2 << 20} {
			for _, pull := range []int{256 << 10, 512 << 10, 1 << 20, 1792 << 10, 4 << 20} {
				x := exchange{server: server, push: file(b, push), chunk: file(b, push), answer: file(b, pull), pull: file(b, pull), rewrites: fresh}
				b.Run(fmt.Sprintf("%s/%dKiB-%dKiB", name, push>>10, pull>>10), x.compare)
			}
		}
	}
}

// exchange is the memory of a worker and a server.
type exchange struct {
	server                    *core
	push, chunk, answer, pull []byte
	rewrites                  bool           // both sides write what they send anew, and read what they get
	own, others               [16 << 10]byte // that the worker and the server write from and read to
}

// turn is how many exchanges in a row go the same way, of which the first ones find the caches as the other way left
// them.
const turn, ignored = 30, 4

func (x *exchange) compare(b *testing.B) {
	var took [2][]float64
	for i := range max(b.N, 2*turn) {
		byServer := i / turn % 2
		d := x.run(byServer == 1)
		if i%turn >= ignored {
			took[byServer] = append(took[byServer], float64(d.Nanoseconds()))
		}
	}
	worker := median(took[0])
	b.ReportMetric(worker/1000, "worker-us")
	b.ReportMetric(median(took[1])/worker, "server/worker")
}

func (x *exchange) run(byServer bool) time.Duration {
	if x.rewrites {
		writeAll(x.push, x.own[:])
	}
	began := time.Now()
	bulk.Copy(x.chunk, x.push)
	x.server.begin(func() {
		if x.rewrites {
			readAll(x.chunk, x.others[:])
			writeAll(x.answer, x.others[:])
		}
		if byServer {
			bulk.Copy(x.pull, x.answer)
		}
	})
	x.server.await()
	if !byServer {
		bulk.Copy(x.pull, x.answer)
	}
	if x.rewrites {
		readAll(x.pull, x.own[:])
	}
	return time.Since(began)
}

func writeAll(b, from []byte) {
	for len(b) > 0 {
		b = b[copy(b, from):]
	}
}

func readAll(b, to []byte) {
	for len(b) > 0 {
		b = b[copy(to, b):]
	}
}
