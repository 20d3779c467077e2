package stress

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/ps"
)

var peerSeed = flag.Int("peer.seed", -1, "repeat the one death of a peer that has this seed")

// peersOfDeaths is how many peers a cluster has, one of which dies.
const peersOfDeaths = 4

// learned is how long it may take from the death of a peer to the errors of all others.
const learned = 2 * time.Second

// overCopies is shared memory where foreign memory is copied, and not read where it is.
var overCopies = vanKind{name: "shm", apply: func(s *ps.Settings) { s.Van, s.PeerMemory = config.VanShm, false }}

// vansOfPeers join processes of peers.
func vansOfPeers() []vanKind {
	if withRDMA() {
		return vansOfMachines()
	}
	return []vanKind{overShm, overCopies, overUnix, overTCP}
}

// ending says what happens to a peer.
type ending string

const (
	killed      ending = "killed"
	paused      ending = "stopped for a moment, and then killed"
	stopped     ending = "stopped until all have given it up"
	interrupted ending = "interrupted"
)

// place says where the scheduler is.
type place string

const (
	apart      place = "scheduler apart"
	hosted     place = "another peer hosts the scheduler"
	hostedHere place = "the victim hosts the scheduler"
)

// peerDeath is one death. All of it follows from its seed.
type peerDeath struct {
	phase  phase
	ending ending
	place  place
	work   peerWork
	victim int
	pause  time.Duration // after the last mark
}

func newPeerDeath(seed int) (d peerDeath) {
	endings, places := []ending{killed, paused, stopped, interrupted}, []place{apart, hosted, hostedHere}
	d.phase, d.ending, d.place = phases[seed%6], endings[seed/6%4], places[seed/24%3]
	r := rand.New(rand.NewPCG(uint64(seed), 19))
	d.work = peerWork{Leaves: r.IntN(2) == 0, Heap: r.IntN(2) == 0, Bytes: []int64{8, 4 << 10, 256 << 10, 2 << 20}[r.IntN(4)]}
	d.victim = 1 + r.IntN(peersOfDeaths-1)
	if d.place == hostedHere {
		d.victim = 0
	}
	d.pause = time.Duration(r.Int64N(int64([]time.Duration{time.Millisecond, 20 * time.Millisecond}[r.IntN(2)])))
	return d
}

func (d peerDeath) String() string {
	return fmt.Sprintf("%s, %s, %s, %+v, peer %d, after %v", d.phase, d.ending, d.place, d.work, d.victim, d.pause)
}

// names reports whether a text names the victim, or the scheduler that went with it.
func (d peerDeath) names(text string) bool {
	return strings.Contains(text, fmt.Sprint("peer ", d.victim)) || d.place == hostedHere && strings.Contains(text, "scheduler")
}

// seeds lists the seeds of the deaths over one van. The short form has ten deaths over all vans together.
func (d peerDeath) seeds(van int) (list []int) {
	switch {
	case *peerSeed >= 0:
		return []int{*peerSeed}
	case *long:
		for i := range 200 / min(slowness, 4) {
			list = append(list, i)
		}
		return list
	}
	count := 10
	if slowness > 1 {
		count = 4
	}
	for i := van; i < count; i += 4 {
		list = append(list, i*29%72)
	}
	return list
}

// A peer is killed, stopped or interrupted at a random moment. All others learn that in time and by name, and hang
// nowhere. Nobody serves a mixture of versions. The others make the next plan, and it is exact.
func TestKilledPeersOfPlansStress(t *testing.T) {
	for i, van := range vansOfPeers() {
		name := van.name
		if i == 1 {
			name = "shm-copied"
		}
		for _, seed := range (peerDeath{}).seeds(i) {
			t.Run(fmt.Sprint(name, "/", seed), func(t *testing.T) {
				d := newPeerDeath(seed)
				t.Logf("-peer.seed=%d: %v", seed, d)
				r := &peerRun{t: t, death: d}
				r.raise(van)
				r.die()
				r.requireLearned()
				if d.place != hostedHere {
					r.refitWithout(van)
				}
				r.end()
			})
		}
	}
}

// peerRun is a death that happens.
type peerRun struct {
	t         *testing.T
	death     peerDeath
	scheduler *child // nil where a peer hosts it
	peers     []*child
	at        int64
}

func (r *peerRun) victim() *child { return r.peers[r.death.victim] }

func (r *peerRun) others() (list []*child) {
	for i, p := range r.peers {
		if i != r.death.victim {
			list = append(list, p)
		}
	}
	return list
}

// raise starts the cluster.
func (r *peerRun) raise(van vanKind) {
	s := peerSettings(van, peersOfDeaths)
	if r.death.ending == stopped {
		s.HeartbeatInterval, s.HeartbeatTimeout = ps.DefaultSettings().HeartbeatInterval, ps.DefaultSettings().HeartbeatTimeout
	}
	host := -1
	if r.death.place != apart {
		host = 0
	}
	r.scheduler, r.peers = raisePeers(r.t, s, host, r.death.work)
}

// peerSettings are the settings of a cluster of peers.
func peerSettings(van vanKind, n int) ps.Settings {
	s := base(van, 0, 0)
	s.NumPeer = n
	return s
}

// raisePeers starts a cluster of peers. One of them hosts the scheduler, or for -1 a process of its own.
func raisePeers(t testing.TB, s ps.Settings, host int, w peerWork) (scheduler *child, peers []*child) {
	t.Helper()
	dir := private(t)
	peers = make([]*child, s.NumPeer)
	add := func(rank int, w peerWork) *child {
		mine := s
		mine.Role, mine.NodeRank = ps.RolePeer, rank
		if w.Hosts {
			mine.RootPort = 1 // the process chooses
		}
		return spawn(t, mine, job{Program: "peer", Peer: w}, "TMPDIR="+dir)
	}
	if host >= 0 {
		hosting := w
		hosting.Hosts = true
		peers[host] = add(host, hosting)
		s.RootPort = peers[host].await(evPort, nil).Count
	} else {
		mine := s
		mine.Role = ps.RoleScheduler
		scheduler = spawn(t, mine, job{Program: "node"}, "TMPDIR="+dir)
		s.RootPort = scheduler.await(evPort, nil).Count
	}
	for rank := range peers {
		if rank != host {
			peers[rank] = add(rank, w)
		}
	}
	dumpOnFailure(t, append(peers[:len(peers):len(peers)], scheduler))
	for _, p := range peers {
		p.await(evStarted, nil)
	}
	return scheduler, peers
}

// dumpOnFailure has processes that still live print their stacks when the test has failed. All stand still first, so
// that the end of one frees no other.
func dumpOnFailure(t testing.TB, all []*child) {
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		for _, p := range all {
			if p != nil {
				_ = p.cmd.Process.Signal(syscall.SIGSTOP)
			}
		}
		for _, p := range all {
			if p != nil && p.cmd.Process.Signal(syscall.SIGQUIT) == nil {
				_ = p.cmd.Process.Signal(syscall.SIGCONT)
				for range p.events { // until the output has ended
				}
			}
		}
	})
}

// die lets the phase begin at all peers, and ends the victim at a random moment of it.
func (r *peerRun) die() {
	r.t.Helper()
	tellAll(r.peers, command{Do: doPhase, Text: string(r.death.phase)})
	for _, p := range r.peers {
		if r.death.phase != connecting { // which is over soon
			p.await(evMark, nil)
		}
	}
	time.Sleep(r.death.pause)
	v := r.victim()
	switch r.death.ending {
	case killed:
		r.at = v.kill()
	case paused:
		v.freeze()
		time.Sleep(5 * r.death.pause)
		v.signal(syscall.SIGCONT)
		time.Sleep(r.death.pause)
		r.at = v.kill()
	case stopped:
		r.at = clock()
		v.freeze()
	case interrupted:
		r.at = clock()
		v.signal(syscall.SIGINT)
	}
}

// requireLearned checks that all others know of the death in time and by name.
func (r *peerRun) requireLearned() {
	r.t.Helper()
	limit, worst := learned, time.Duration(0)
	if r.death.ending == stopped {
		limit += ps.DefaultSettings().HeartbeatTimeout
	}
	for _, p := range r.others() {
		e := p.await(evLost, nil)
		if e.Text == "" && r.death.phase == connecting {
			continue // it was connected before
		}
		if !r.closedByAnother(e.Text) {
			require.True(r.t, r.death.names(e.Text), "%s does not know who died: %s", p.name, e.Text)
		}
		worst = max(worst, since(e.At, r.at))
	}
	for _, p := range r.others() {
		if r.death.ending == interrupted && r.death.work.Leaves && r.death.place != hostedHere {
			continue // it has left, and is not dead
		}
		e := p.await(evDead, func(e event) bool { return r.death.names(e.Text) })
		worst = max(worst, since(e.At, r.at))
	}
	r.t.Logf("the last of the others was told after %v", worst.Round(10*time.Microsecond))
	require.LessOrEqual(r.t, worst, limit)
}

// closedByAnother reports whether a peer was told that another one has closed a plan. That one had been told of the
// death, perhaps by a third peer, and gave up its plans before the others were told.
func (r *peerRun) closedByAnother(text string) bool {
	made := r.death.phase == planning || r.death.phase == closing
	return made && !r.death.names(text) && strings.Contains(text, "was closed")
}

// refitWithout makes a plan among the others and runs it.
func (r *peerRun) refitWithout(van vanKind) {
	r.t.Helper()
	var ranks []stepvan.Rank
	for i := range r.peers {
		if i != r.death.victim {
			ranks = append(ranks, stepvan.Rank(i))
		}
	}
	tellAll(r.others(), command{Do: doRefit, Text: "next", Ranks: ranks, Count: 3})
	for _, p := range r.others() {
		require.Empty(r.t, p.await(evRan, nil).Text, p.name)
	}
}

// end ends what lives.
func (r *peerRun) end() {
	r.t.Helper()
	v := r.victim()
	switch r.death.ending {
	case stopped:
		v.signal(syscall.SIGCONT)
		lost := v.await(evLost, nil)
		if r.death.place == hostedHere { // its scheduler takes all others for dead
			require.True(r.t, strings.Contains(lost.Text, "peer ") || r.death.phase == connecting, lost.Text)
			v.tell(command{Do: doStop})
			v.end()
			break
		}
		v.tell(command{Do: doAwaitEnd})
		require.NotEmpty(r.t, v.await(evGivenUp, nil).Text)
		v.tell(command{Do: doStop})
		require.NotEmpty(r.t, v.end(), "it knows that it was given up")
	case interrupted:
		require.Equal(r.t, "interrupted", v.end())
	default:
		for range v.events {
		}
		_ = v.cmd.Wait()
	}
	tellAll(r.others(), command{Do: doStop})
	for _, p := range r.others() {
		if said := p.end(); r.death.place == hostedHere {
			require.True(r.t, r.death.names(said), "%s does not know what has ended the cluster: %q", p.name, said)
		} else {
			require.Empty(r.t, said, p.name)
		}
	}
	if r.scheduler != nil {
		require.Empty(r.t, r.scheduler.end())
	}
}
