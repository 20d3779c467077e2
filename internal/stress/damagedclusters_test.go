package stress

import (
	"context"
	"flag"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	hurtSeed  = flag.Uint64("hurt.seed", 0, "replay the one damagedCluster cluster that has this seed")
	hurtCount = flag.Int("hurt.clusters", 0, "how many damagedCluster clusters live; 0: 6000 in the long form, a few in the short form")
	hurtFirst = flag.Uint64("hurt.first", 0, "seed of the first damagedCluster cluster; 0: from the clock in the long form, else 1")
)

// hurtAtOnce is how many damaged clusters live at a time: those that wait for the end of silence need no processor.
const hurtAtOnce = max(2, 12/slowness)

// hurtEach is how many of them one process has.
const hurtEach = 300

// lag is how long a goroutine that is due has waited for a processor, ever.
var lag atomic.Int64

// watchLag measures that, for ever: a machine that is busy with other things delays everything here as it delays this.
func watchLag() {
	const pause = 10 * time.Millisecond
	for last := time.Now(); ; {
		time.Sleep(pause)
		now := time.Now()
		if late := now.Sub(last) - pause; late > pause/2 { // less is how exact timers are
			lag.Add(int64(late))
		}
		last = now
	}
}

// lateness is the lag at some time.
type lateness int64

func lateNow() lateness { return lateness(lag.Load()) }

func (l lateness) since() time.Duration { return time.Duration(lag.Load() - int64(l)) }

// runDamagedClusters runs the clusters of some seeds, and reports the outcome of each.
func (c *childProgram) runDamagedClusters(ctx context.Context) error {
	hurtBook()
	go watchLag()
	seeds := make(chan uint64)
	var all sync.WaitGroup
	for range hurtAtOnce {
		all.Go(func() {
			for s := range seeds {
				c.report(event{Kind: evBegun, Seed: s})
				v := newDamagedCluster(s).run()
				for range 3 {
					if v.Hit || !v.Early {
						break
					}
					v = newDamagedCluster(s).run() // the machine was too busy for a start in time, before anything was damaged
				}
				c.report(event{Kind: evJudged, Seed: s, Outcome: &v})
			}
		})
	}
	for i := range uint64(c.job.Count) {
		seeds <- c.job.Seed + i
	}
	close(seeds)
	all.Wait()
	c.report(event{Kind: evEnded})
	return nil
}

// One frame between two nodes is changed, dropped, doubled or cut. No process panics, and nothing
// hangs longer than the heartbeat timeout and a second. Every handle ends, and no other pair is
// harmed. No bytes are wrong except the damaged ones of a payload.
func TestDamagedFramesStress(t *testing.T) {
	first, count := hurtSeeds()
	fmt.Fprintf(os.Stderr, "hurt clusters: seeds %d to %d; -hurt.seed=N replays one\n", first, first+uint64(count)-1)
	sum := &tally{t: t}
	for at := 0; at < count; at += hurtEach {
		sum.process(first+uint64(at), min(hurtEach, count-at))
	}
	sum.check(count)
}

// hurtSeeds returns the seeds of this run.
func hurtSeeds() (first uint64, count int) {
	if *hurtSeed != 0 {
		return *hurtSeed, 1
	}
	first, count = *hurtFirst, *hurtCount
	if first == 0 {
		first = 1
		if *long {
			first = uint64(time.Now().UnixNano()) >> 16
		}
	}
	switch {
	case count > 0:
	case *long:
		count = 6000 / slowness
	default:
		count = 120 / slowness
	}
	return first, count
}

// tally sums the outcomes.
type tally struct {
	t        *testing.T
	outcomes []outcome
	running  map[uint64]bool
}

// process runs clusters in a process of their own.
func (y *tally) process(first uint64, count int) {
	y.t.Helper()
	y.running = map[uint64]bool{}
	s := base(overTCP, 1, 1)
	s.Role, s.RootPort = "scheduler", 1 // of a process that reads no settings
	c := spawn(y.t, s, job{Program: "damaged clusters", Seed: first, Count: count})
	for e := range c.events {
		switch e.Kind {
		case evBegun:
			y.running[e.Seed] = true
		case evJudged:
			delete(y.running, e.Seed)
			y.outcomes = append(y.outcomes, *e.Outcome)
			for _, f := range e.Outcome.Faults {
				y.t.Errorf("seed %d (%s): %s", e.Seed, e.Outcome.Plan, f)
			}
		}
	}
	require.NoError(y.t, c.cmd.Wait(), "the process ended; damagedCluster clusters were running: seeds %v", y.running)
	require.Empty(y.t, y.running)
}

// check holds the sum against what a test of damage must have done.
func (y *tally) check(count int) {
	y.t.Helper()
	var hits [parts]int
	var failed, early, wrong int
	var longest time.Duration
	for _, v := range y.outcomes {
		if v.Hit {
			hits[v.Part]++
		} else {
			y.t.Errorf("seed %d (%s): the frame to be damaged has never come", v.Seed, v.Plan)
		}
		failed += min(1, v.Failed)
		wrong += min(1, v.Wrong)
		if v.Early {
			early++
		}
		longest = max(longest, v.Took)
	}
	y.t.Logf("%d clusters: damage to %d headers, %d metas, %d payloads; in %d the start failed, in %d an exchange; in %d bytes were wrong; all was over %v after the damage at the latest",
		count, hits[inHeader], hits[inMeta], hits[inPayload], early, failed, wrong, longest.Round(time.Millisecond))
	require.Len(y.t, y.outcomes, count)
	for p, n := range hits {
		require.GreaterOrEqual(y.t, 10*n, 3*(count-2), "%v: at least 30 %% of all damage", part(p))
	}
	if count > 100 {
		require.NotZero(y.t, failed, "damage that does nothing proves nothing")
		require.NotZero(y.t, wrong, "a payload has no checksum over TCP")
	}
}
