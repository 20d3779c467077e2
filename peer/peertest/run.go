package peertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/van/tcpvan"
)

// deadline bounds a case. A case reaches it only when something hangs.
const deadline = 30 * time.Second

// Case is a program for all members of a cluster.
type Case struct {
	Name string
	size int
	run  func(m *member)
	// machines of the members, where all run in one process; nil: they are on one machine
	machines []int
}

var sockets atomic.Int64

// Unix is a van over Unix sockets.
func Unix() pairtest.Van {
	v := pairtest.TCPVan("unix", tcpvan.Options{})
	v.Addr = func(string) string {
		return fmt.Sprintf("tcp://unix:@peertest-%d-%d", os.Getpid(), sockets.Add(1))
	}
	return v
}

// Run runs all cases in one process.
func Run(t *testing.T, v pairtest.Van) {
	for _, c := range Cases() {
		t.Run(c.Name, func(t *testing.T) {
			if found := Check(t, v, c, nil); found != "" {
				t.Error(found)
			}
		})
	}
}

// Check runs a case with goroutines as members, and returns what it finds. change may wrap the peers.
func Check(t testing.TB, v pairtest.Van, c Case, change func(Peer) Peer) string {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	all := pairtest.NewPeers(t, pairtest.Options{Van: v, Machines: c.machines}, c.size)
	table := newMeeting(c.size)
	var found atomic.Pointer[string]
	var wait sync.WaitGroup
	for i, p := range all {
		m := &member{rank: i, size: c.size, peer: plainPeer{p.Peer, p.Peer}, memory: p.Memory, shares: v.Shares, ctx: ctx, rng: rand.New(rand.NewPCG(1, 2))}
		m.exchange = func(mine []byte) [][]byte { return table.exchange(i, mine) }
		if change != nil {
			m.peer = change(m.peer)
			if x, ok := m.peer.(meeter); ok {
				m.exchange = func(mine []byte) [][]byte { defer x.meets(); return table.exchange(i, mine) }
			}
		}
		m.dead = make(chan struct{})
		gone := func(err error) { // the others hear of it, as from the scheduler
			for _, other := range all {
				if other != p {
					other.Service.Lost(p.Members()[i].ID, err)
				}
			}
			table.leave(i)
		}
		m.die = func() { _ = p.Transport.Abort(); gone(stepvan.ErrPeerLost); close(m.dead) }
		m.quit = func() { _ = p.Transport.Close(); gone(link.ErrLeft) }
		wait.Go(func() {
			if text := perform(c, m); text != "" {
				found.CompareAndSwap(nil, &text)
				table.breakUp()
				cancel()
			}
		})
	}
	wait.Wait()
	if text := found.Load(); text != nil {
		return *text
	}
	return ""
}

// meeter is a peer that acts after its member has met the others.
type meeter interface{ meets() }

// perform runs a case at a member.
func perform(c Case, m *member) (text string) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case violation:
			text = string(v)
		default:
			panic(v)
		}
	}()
	c.run(m)
	m.free()
	return ""
}

// meeting is where goroutines meet.
type meeting struct {
	mu      sync.Mutex
	changed *sync.Cond
	living  int
	gone    []bool
	round   int
	came    int
	values  [][]byte
	last    [][]byte
	broken  bool
}

func newMeeting(n int) *meeting {
	x := &meeting{living: n, gone: make([]bool, n), values: make([][]byte, n)}
	x.changed = sync.NewCond(&x.mu)
	return x
}

func (x *meeting) exchange(i int, mine []byte) [][]byte {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.values[i] = mine
	x.came++
	round := x.round
	x.close()
	for x.round == round && !x.broken {
		x.changed.Wait()
	}
	if x.broken {
		panic(violation("another member has failed"))
	}
	return x.last
}

// close ends the round when all are there.
func (x *meeting) close() {
	if x.came < x.living {
		return
	}
	x.round++
	x.came, x.last, x.values = 0, x.values, make([][]byte, len(x.values))
	x.changed.Broadcast()
}

func (x *meeting) leave(i int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.gone[i] {
		x.gone[i] = true
		x.living--
		if x.living > 0 && x.came > 0 {
			x.close()
		}
	}
}

func (x *meeting) breakUp() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.broken = true
	x.changed.Broadcast()
}
