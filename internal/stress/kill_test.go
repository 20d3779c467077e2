package stress

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/ps"
)

// noticed is how long it may take from a death to the errors that name the dead.
const noticed = time.Second

// moment is when the victim is killed.
type moment string

const (
	atSpeed   moment = "at full speed"
	halfway   moment = "while large payload is on its way"
	afterStop moment = "after it was stopped"
	notAtAll  moment = "not at all" // it is suspended until all count it as dead, and then continues
)

// death is one run: a process is killed in the middle of exchanges.
type death struct {
	victim ps.Role // the one with rank 1
	moment moment
	apart  bool // exchanges with one server at a time, in batches of any; else in lock-step
}

func (d death) String() string {
	how := "lockstep"
	if d.apart {
		how = "any"
	}
	return fmt.Sprintf("%s, %s, %s", d.victim, d.moment, how)
}

// deaths are all, or in the short form as many as show each thing once.
func deaths() (out []death) {
	if !*long {
		out = []death{
			{ps.RoleServer, atSpeed, true}, {ps.RoleWorker, halfway, true}, {ps.RoleWorker, afterStop, false},
			{ps.RoleServer, halfway, false}, {ps.RoleServer, afterStop, true}, {ps.RoleServer, notAtAll, true},
		}
		if slowness > 1 {
			return out[:3]
		}
		return out
	}
	for _, v := range []ps.Role{ps.RoleServer, ps.RoleWorker} {
		for _, m := range []moment{atSpeed, halfway, afterStop} {
			out = append(out, death{v, m, true}, death{v, m, false})
		}
		out = append(out, death{v, notAtAll, true})
	}
	return out
}

// large reports whether large payload is on its way.
func (d death) large() bool { return d.moment == halfway || d.moment == notAtAll }

// hearing makes silence a death where that is what is shown.
func (d death) hearing(s *ps.Settings) {
	if d.moment == notAtAll {
		s.HeartbeatInterval, s.HeartbeatTimeout = 200*time.Millisecond, 2*time.Second
	}
}

// exchanges is the number of exchanges of each lane, in the middle of which a process dies.
func exchanges() int {
	switch {
	case *long:
		return 10_000
	case testing.Short():
		return 200 / slowness
	}
	return 1000 / slowness
}

// A process that is killed in the middle of exchanges corrupts nothing. Every other process gets an
// error that names it within a second. No byte of completed exchanges is wrong. Exchanges with
// others continue where the policy allows it, and nothing is left behind at the end.
func TestKilledPeersStress(t *testing.T) {
	each(t, vansOfMachines(), func(t *testing.T, van vanKind) {
		for i, d := range deaths() {
			t.Run(d.String(), func(t *testing.T) {
				r := &run{t: t, van: van, death: d, rand: rand.New(rand.NewPCG(uint64(i), 9))}
				r.cluster = raise(t, van, shape{workers: 2, servers: 2, work: work{Loads: []load{small, large}, Apart: d.apart}, edit: d.hearing})
				r.victim = r.cluster.servers[1]
				if d.victim == ps.RoleWorker {
					r.victim = r.cluster.workers[1]
				}
				r.lead()
				r.die()
				r.requireDeathReported()
				r.resumeVictim()
				r.finishExchanges()
				r.end()
			})
		}
	})
}

// run is a death that happens.
type run struct {
	t       *testing.T
	van     vanKind
	death   death
	rand    *rand.Rand
	cluster *cluster
	victim  *child
	at      int64 // when it was killed
}

// shared is a living worker, and the lane on which it exchanges with the victim. Without such a
// lane it is one that shows that the victim's exchanges are in flight.
func (r *run) shared() (*child, int) {
	if !r.death.apart {
		return r.cluster.workers[0], allServers
	}
	return r.cluster.workers[0], 1
}

// lead has all exchange at full speed up to a random point in the middle.
func (r *run) lead() {
	r.t.Helper()
	n := exchanges()
	point := n/5 + r.rand.IntN(3*n/5)
	w, lane := r.shared()
	w.tell(command{Do: doMark, Lane: lane, Count: point})
	tellAll(r.cluster.workers, command{Do: doRun, Count: 1 << 40})
	w.await(evMark, nil)
	if !r.death.large() {
		return
	}
	tellAll(r.cluster.workers, command{Do: doLarge})
	for _, p := range r.cluster.workers { // whatever is on its way is large once two are through
		p.tell(command{Do: doMark, Lane: lane, Count: 3})
		p.await(evMark, nil)
	}
}

// die kills the victim at a random moment of the next exchanges.
func (r *run) die() {
	r.t.Helper()
	pause := time.Duration(r.rand.Int64N(int64(5 * time.Millisecond)))
	switch r.death.moment {
	case halfway:
		pause *= 4 // somewhere in an exchange of several MiB
	case afterStop:
		r.victim.freeze()
		r.exchangeWithOthers()
		pause *= 10 // long enough for windows and queues to fill
	case notAtAll:
		time.Sleep(pause)
		r.victim.freeze()
		return
	}
	time.Sleep(pause)
	r.at = r.victim.kill()
}

// exchangeWithOthers shows that exchanges with others continue while the victim is stopped.
func (r *run) exchangeWithOthers() {
	r.t.Helper()
	if !r.death.apart {
		return
	}
	w := r.cluster.workers[0]
	w.tell(command{Do: doMark, Lane: 0, Count: 50})
	w.await(evMark, func(e event) bool { return e.Lane == 0 })
}

// requireDeathReported checks that every living node learned within a second which node died.
func (r *run) requireDeathReported() {
	r.t.Helper()
	var worst time.Duration
	check := func(p *child, e event) {
		r.t.Helper()
		require.Contains(r.t, e.Text, r.victim.name, p.name)
		if r.death.moment != notAtAll {
			took := since(e.At, r.at)
			worst = max(worst, took)
			require.LessOrEqual(r.t, took, noticed, "%s: %s", p.name, e.Text)
		}
	}
	for _, p := range r.cluster.but(r.victim, r.cluster.scheduler) {
		isWorker := slices.Contains(r.cluster.workers, p)
		check(p, p.await(evDead, nil))
		switch {
		case r.death.apart && (r.death.victim == ps.RoleWorker || !isWorker):
			// Its exchanges were all with others.
		case isWorker:
			e := p.await(evLost, nil)
			check(p, e)
			if r.death.large() {
				require.GreaterOrEqual(r.t, e.Bytes, large.bytes())
			}
			require.Contains(r.t, p.await(evRefused, nil).Text, r.victim.name)
		default:
			check(p, p.await(evLost, nil))
		}
	}
	if r.death.moment == notAtAll {
		return
	}
	r.t.Logf("%s was killed %s: the last of the others was told after %v", r.victim.name, r.death.moment, worst.Round(10*time.Microsecond))
}

// resumeVictim continues a victim that was only stopped. It shows that the victim cannot harm
// memory that others use again.
func (r *run) resumeVictim() {
	r.t.Helper()
	lends := r.death.victim == ps.RoleServer && r.death.apart // a lane of each worker was with the victim alone
	if r.death.moment == notAtAll {
		if lends && r.van.name == overShm.name {
			for _, w := range r.cluster.workers {
				w.sample()
				require.False(r.t, slices.ContainsFunc(w.kept, func(e event) bool { return e.Kind == evFreed }), "%s gives back what %s can still write to", w.name, r.victim.name)
			}
		}
		r.victim.signal(syscall.SIGCONT)
	}
	for _, w := range r.cluster.workers {
		if lends {
			w.await(evFreed, nil)
		}
	}
}

// finishExchanges has the living nodes do the rest of their exchanges with each other.
func (r *run) finishExchanges() {
	r.t.Helper()
	if !r.death.apart {
		return
	}
	n := exchanges() / 2
	if r.death.large() {
		n = 5
	}
	for _, w := range r.cluster.workers {
		if w == r.victim {
			continue
		}
		w.tell(command{Do: doFinish, Count: n})
		for lane := range r.cluster.servers {
			if r.death.victim == ps.RoleWorker || lane != 1 {
				w.await(evRan, func(e event) bool { return e.Lane == lane })
			}
		}
	}
}

// end stops the living nodes. In lock-step their Stop names the node whose death ended the cluster.
func (r *run) end() {
	r.t.Helper()
	for _, w := range r.cluster.workers {
		if w != r.victim {
			w.tell(command{Do: doStop})
		}
	}
	for _, p := range r.cluster.but(r.victim) {
		switch said := p.end(); {
		case r.death.apart || p == r.cluster.scheduler:
			require.Empty(r.t, said, p.name)
		default:
			require.Contains(r.t, said, r.victim.name, p.name)
		}
	}
	if r.death.moment == notAtAll {
		if r.death.victim == ps.RoleWorker {
			r.victim.tell(command{Do: doStop})
		}
		require.NotEmpty(r.t, r.victim.end(), "it knows that it was given up")
	}
	pid := fmt.Sprintf(".%d.", r.victim.cmd.Process.Pid)
	for _, f := range files(r.t, r.cluster.dir) {
		require.True(r.t, strings.Contains(f, pid), "%s is left, and is not of the dead", f)
	}
}
