package stress

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/ps"
)

// requireNoLeftovers shows that a cluster can live where others died, and that it leaves no file.
func requireNoLeftovers(t *testing.T, van vanKind, dir string) {
	t.Helper()
	cl := raise(t, van, shape{workers: 1, servers: 1, work: work{Loads: []load{small}}, dir: dir})
	cl.workers[0].exchange(10)
	cl.workers[0].tell(command{Do: doStop})
	for _, p := range cl.all() {
		require.Empty(t, p.end())
	}
	require.Empty(t, files(t, dir), "leftovers of the dead are not cleaned up by the next start")
}

// Processes that are killed all at once leave things behind. These are gone after the next start.
func TestLeftoversAreCleanedUpStress(t *testing.T) {
	each(t, vansOfMachines(), func(t *testing.T, van vanKind) {
		dir := private(t)
		for range 2 {
			cl := raise(t, van, shape{workers: 2, servers: 2, work: work{Loads: []load{small}}, dir: dir})
			tellAll(cl.workers, command{Do: doRun, Count: 1 << 40})
			for _, w := range cl.workers {
				w.tell(command{Do: doMark, Lane: allServers, Count: 10})
				w.await(evMark, nil)
			}
			for _, p := range cl.all() {
				p.kill()
			}
			for _, p := range cl.all() {
				_ = p.cmd.Wait()
			}
			if van.name != "tcp" {
				require.NotEmpty(t, files(t, dir), "there is nothing to clean up")
			}
		}
		requireNoLeftovers(t, van, dir)
	})
}

// A process that has registered dies before the cluster is complete: another takes its rank.
func TestKilledBeforeTheStartStress(t *testing.T) {
	each(t, vansOfMachines(), func(t *testing.T, van vanKind) {
		for _, victim := range []ps.Role{ps.RoleServer, ps.RoleWorker} {
			t.Run(string(victim), func(t *testing.T) {
				c := shape{workers: 2, servers: 2, work: work{Loads: []load{small}}, logs: true}
				cl := begin(t, van, c)
				cl.servers = []*child{cl.add(van, c, ps.RoleServer, 0)}
				cl.workers = []*child{cl.add(van, c, ps.RoleWorker, 0)}
				dead := cl.add(van, c, victim, 1)
				dead.awaitLog("registered at the scheduler")
				dead.kill()
				cl.scheduler.awaitLog(dead.name)
				cl.scheduler.awaitLog("its place is free again")
				cl.servers = append(cl.servers, cl.add(van, c, ps.RoleServer, 1))
				cl.workers = append(cl.workers, cl.add(van, c, ps.RoleWorker, 1))
				for _, p := range cl.all() {
					p.await(evStarted, nil)
				}
				tellAll(cl.workers, command{Do: doRun, Count: 100})
				for _, w := range cl.workers {
					w.await(evRan, nil)
				}
				tellAll(cl.workers, command{Do: doStop})
				for _, p := range cl.all() {
					require.Empty(t, p.end())
				}
				requireNoLeftovers(t, van, cl.dir)
			})
		}
	})
}

// starts is the number of starts in which a process dies.
func starts() int {
	if *long {
		return 100
	}
	return 6 / min(slowness, 2)
}

// A process dies at a random moment of the start, and is replaced. Whether or not the replacement
// comes in time, all nodes know within seconds. They start or end with an error, and leave nothing
// behind.
func TestKilledWhileStartingStress(t *testing.T) {
	each(t, vansOfMachines(), func(t *testing.T, van vanKind) {
		dir := private(t)
		random := rand.New(rand.NewPCG(3, 4))
		joined := 0
		for i := range starts() {
			c := shape{workers: 2, servers: 1, work: work{Loads: []load{small}}, dir: dir, logs: true}
			cl := begin(t, van, c)
			cl.servers = []*child{cl.add(van, c, ps.RoleServer, 0)}
			cl.workers = []*child{cl.add(van, c, ps.RoleWorker, 0), cl.add(van, c, ps.RoleWorker, 1)}
			victim := cl.workers[1]
			role, rank := ps.RoleWorker, 1
			if i%2 == 1 {
				victim, role, rank = cl.servers[0], ps.RoleServer, 0
			}
			if i%3 != 0 {
				victim.awaitLog([]string{"registered at the scheduler", "joined as"}[i%3-1])
			}
			time.Sleep(time.Duration(random.Int64N(int64(20 * time.Millisecond))))
			victim.kill()
			_ = victim.cmd.Wait() // until then it may seem to live
			if awaitStart(t, cl.but(victim), cl.add(van, c, role, rank), victim) {
				joined++
			}
		}
		t.Logf("%d of %d clusters became complete with the replacement", joined, starts())
		requireNoLeftovers(t, van, dir)
	})
}

// awaitStart waits until all have started together with the replacement, and ends them. Or it waits
// until the living nodes have ended because of the death.
func awaitStart(t *testing.T, living []*child, replacement, victim *child) (complete bool) {
	t.Helper()
	all := append(slices.Clone(living), replacement)
	fate := func(e event) bool { return e.Kind == evStarted || e.Kind == evDead || e.Kind == evEnded }
	up := map[*child]bool{}
	var p *child
	var e event
	for {
		p, e = first(bound, "its fate", fate, all...)
		if e.Kind != evStarted {
			break
		}
		up[p] = true
		if complete = len(up) == len(all); complete {
			break
		}
	}
	if !complete {
		p.kept = append(p.kept, e)
		replacement.kill() // it waits for a scheduler that is gone or refuses it
	}
	for _, p := range all {
		if strings.HasPrefix(p.name, "worker") && (complete || p != replacement) {
			_ = p.orders.Encode(command{Do: doStop}) // a node that did not start has ended
		}
	}
	for _, p := range all {
		if complete {
			require.Empty(t, p.end(), p.name)
		} else if p != replacement {
			requireDeathReported(t, p, victim)
		}
	}
	return complete
}

// requireDeathReported waits for the end of a node whose cluster has lost another.
func requireDeathReported(t *testing.T, p, victim *child) {
	t.Helper()
	if said := p.end(); p.name != "scheduler" {
		require.Contains(t, said, victim.name, p.name)
		require.NotContains(t, said, "STEPVAN_START_TIMEOUT", "%s has waited for somebody who is dead", p.name)
	}
}

// A process that has called Stop dies: it does not hold up the others.
func TestKilledWhileStoppingStress(t *testing.T) {
	each(t, vansOfMachines(), func(t *testing.T, van vanKind) {
		for _, victim := range []ps.Role{ps.RoleWorker, ps.RoleServer} {
			t.Run(string(victim), func(t *testing.T) {
				cl := raise(t, van, shape{workers: 2, servers: 2, work: work{Loads: []load{small}, Apart: true}})
				tellAll(cl.workers, command{Do: doRun, Count: 100})
				for _, w := range cl.workers {
					for lane := range cl.servers {
						w.await(evRan, func(e event) bool { return e.Lane == lane })
					}
				}
				dead := cl.workers[0]
				dead.tell(command{Do: doStop})
				if victim == ps.RoleServer {
					// A server stops when its workers have. Worker 1 is held, so no node has left yet.
					cl.workers[1].tell(command{Do: doStop})
					dead = cl.servers[1]
				}
				dead.await(evStopping, nil)
				dead.kill()
				if victim == ps.RoleWorker {
					cl.workers[1].tell(command{Do: doStop})
				}
				for _, p := range cl.but(dead) {
					e := p.await(evEnded, nil)
					require.Empty(t, e.Leaks, p.name)
					p.gone()
				}
				pid := fmt.Sprintf(".%d.", dead.cmd.Process.Pid)
				for _, f := range files(t, cl.dir) {
					require.Contains(t, f, pid, "it is not of the dead")
				}
			})
		}
	})
}
