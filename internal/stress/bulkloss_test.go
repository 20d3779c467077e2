package stress

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stepvan/stepvan/ps"
)

var wantedRuns = flag.Int("runs", 0, "how often each loss amid bulk happens; 0: in the long form 200 times under the race detector and 50 times without, else a few times")

func bulkRuns() int {
	switch {
	case *wantedRuns > 0:
		return *wantedRuns
	case *long && slowness > 1:
		return 200
	case *long:
		return 50
	}
	return max(1, 3/slowness)
}

// A second loss may come while a worker still receives the answers to requests that the first one
// has failed. No process panics, and each that lives ends in order.
func TestLossesAmidBulkStress(t *testing.T) {
	scenarios := []struct {
		name    string
		workers int
		lose    func(*bulkRun)
	}{
		{"the scheduler, then the server", 1, (*bulkRun).loseSchedulerAndServer},
		{"a worker in lock-step, and the server's program ends at the error", 2, (*bulkRun).loseWorker},
	}
	for i, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			for n := range bulkRuns() {
				seed := uint64(n)
				if !t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
					r := &bulkRun{t: t, dice: rand.New(rand.NewPCG(seed, uint64(i)))}
					r.raise(s.workers)
					r.pause(0, 100*time.Millisecond)
					s.lose(r)
				}) {
					return
				}
			}
		})
	}
}

// bulkRun is a cluster that carries bulk, and loses peers at random moments.
type bulkRun struct {
	t       *testing.T
	dice    *rand.Rand
	cluster *cluster
}

// raise returns when every worker has an answer, and all flights are in the air.
func (r *bulkRun) raise(workers int) {
	r.t.Helper()
	c := shape{workers: workers, servers: 1, edit: brief}
	cl := begin(r.t, overTCP, c)
	r.cluster = cl
	add := func(role ps.Role, rank int) *child {
		j := job{Program: "bulk", Hasty: role == ps.RoleServer && workers > 1}
		return spawn(r.t, c.settings(overTCP, role, rank, cl.port), j, "TMPDIR="+cl.dir)
	}
	cl.servers = append(cl.servers, add(ps.RoleServer, 0))
	for rank := range workers {
		cl.workers = append(cl.workers, add(ps.RoleWorker, rank))
	}
	for _, w := range cl.workers {
		w.await(evMark, nil)
	}
}

// pause lets some of the bulk pass: where in it the loss comes is what differs from run to run.
func (r *bulkRun) pause(least, most time.Duration) {
	time.Sleep(least + time.Duration(r.dice.Int64N(int64(most-least))))
}

func (r *bulkRun) loseSchedulerAndServer() {
	r.t.Helper()
	w := r.cluster.workers[0]
	r.cluster.scheduler.kill()
	r.pause(30*time.Millisecond, 150*time.Millisecond)
	r.cluster.servers[0].kill()
	w.awaitLog(sessionLost) // with the scheduler
	w.awaitLog(sessionLost) // with the server
	r.end(w)
}

func (r *bulkRun) loseWorker() {
	r.t.Helper()
	w, s := r.cluster.workers[0], r.cluster.servers[0]
	r.cluster.workers[1].kill()
	s.await(evLost, nil)
	s.gone()
	w.awaitLog(sessionLost)
	r.end(w)
	r.cluster.scheduler.end()
}

// end has a worker whose cluster is lost stop.
func (r *bulkRun) end(w *child) {
	r.t.Helper()
	w.await(evLost, nil)
	w.tell(command{Do: doStop})
	w.await(evEnded, nil)
	w.gone()
}
