package stress

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/ps"
)

var busyTime = flag.Duration("busy", 10*time.Minute, "with -long: how long many peers are busy")

// meshMost is how much more memory many peers may take when each has a connection with each other one.
const meshMost = 1 << 30

// busyPeers are how many peers are busy at once, and for how long.
func busyPeers() (count int, busy time.Duration) {
	if *long {
		return 64, *busyTime
	}
	return 8, 2 * time.Second
}

// Many peers keep the few cores of a machine busy: all of them compute, and run a plan in which each sends to each.
// With the usual settings nobody takes a living peer for dead, and their connections take little memory.
func TestBusyPeersSoak(t *testing.T) {
	count, busy := busyPeers()
	s := peerSettings(overShm, count)
	s.HeartbeatInterval, s.HeartbeatTimeout = ps.DefaultSettings().HeartbeatInterval, ps.DefaultSettings().HeartbeatTimeout
	scheduler, peers := raisePeers(t, s, -1, peerWork{Bytes: 1 << 10})
	alone := memoryOf(t, peers)
	tellAll(peers, command{Do: doMesh})
	for _, p := range peers {
		require.Empty(t, p.await(evRan, nil).Text, p.name)
	}
	meshed := memoryOf(t, peers)
	tellAll(peers, command{Do: doBusy, Count: int(busy / time.Millisecond)})
	runs := 0
	for _, p := range peers {
		e := p.awaitFor(busy+soakBound, evRan, nil)
		require.Empty(t, e.Text, p.name)
		runs = e.Count
	}
	worked := memoryOf(t, peers)
	const mib = 1 << 20
	t.Logf("%d peers ran a plan %d times in %v; together they take %d MiB alone, %d MiB in a full mesh, %d MiB after that",
		count, runs, busy, alone/mib, meshed/mib, worked/mib)
	require.Less(t, max(meshed, worked)-alone, int64(meshMost))
	tellAll(peers, command{Do: doStop})
	for _, p := range append(peers, scheduler) {
		require.Empty(t, p.end(), p.name)
		for _, e := range p.kept {
			require.NotEqual(t, evDead, e.Kind, "%s takes %s for dead", p.name, e.Text)
		}
	}
}

// memoryOf is what processes take together: shared pages count once.
func memoryOf(t *testing.T, all []*child) (sum int64) {
	t.Helper()
	for _, p := range all {
		text, err := os.ReadFile("/proc/" + strconv.Itoa(p.cmd.Process.Pid) + "/smaps_rollup")
		require.NoError(t, err)
		sum += field(text, "\nPss:") << 10
	}
	require.NotZero(t, sum)
	return sum
}

// busy computes, and runs a plan among all peers. Peer 0 says when it is over.
func (x *peerProgram) busy(d time.Duration) (runs int, err error) {
	over := make(chan struct{})
	defer close(over)
	go func() {
		for sum := 0; ; sum++ {
			select {
			case <-over:
				return
			default:
				if sum%1_000_000 == 0 {
					runtime.Gosched()
				}
			}
		}
	}()
	e, err := x.newRefit(x.all())
	if err != nil {
		return 0, err
	}
	defer e.free()
	if err := e.make("busy"); err != nil {
		return 0, err
	}
	g, err := x.p.Group("busy", e.ranks)
	if err != nil {
		return 0, err
	}
	for end := time.Now().Add(d); ; {
		for range 5 {
			e.last++
			if err := e.run(e.last); err != nil {
				return runs, err
			}
			runs++
		}
		have, err := g.AllGather(x.ctx, fmt.Append(nil, time.Now().After(end)))
		if err != nil {
			return runs, err
		}
		if string(have[0]) == "true" {
			return runs, errors.Join(e.plan.Close(x.ctx), g.Barrier(x.ctx))
		}
	}
}
