package stress

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
)

// peersOfRefits is how many peers a cluster has that makes plans and runs them again and again.
const peersOfRefits = 3

// refitsOfTests are how many plans are made for the warm-up and for the proof, and how often each runs.
func refitsOfTests() (warm, proof, runs int) {
	if *long {
		return 40, 200, 50
	}
	return 5, 10, 30 / slowness
}

// Plans are made, run with rising versions and closed, again and again. Nothing grows at any peer: memory, descriptors,
// memory files of others that are mapped, goroutines.
func TestRefitsStayFlatStress(t *testing.T) {
	for i, van := range vansOfPeers() {
		name := van.name
		if i == 1 {
			name = "shm-copied"
		}
		if !*long && i > 0 {
			break
		}
		t.Run(name, func(t *testing.T) {
			s := peerSettings(van, peersOfRefits)
			s.Handles = 64 // the warm-up fills the table of those that have ended
			scheduler, peers := raisePeers(t, s, -1, peerWork{Bytes: 64 << 10, Heap: i == 1})
			var ranks []stepvan.Rank
			for r := range peers {
				ranks = append(ranks, stepvan.Rank(r))
			}
			warm, proof, runs := refitsOfTests()
			refit := func(plans int, name string) {
				tellAll(peers, command{Do: doRefit, Text: name, Ranks: ranks, Plans: plans, Count: runs})
				for _, p := range peers {
					require.Empty(t, p.awaitFor(soakBound, evRan, nil).Text, p.name)
				}
			}
			refit(warm, "warm")
			var before []vitals
			for _, p := range peers {
				before = append(before, p.sample())
			}
			refit(proof, "proof")
			for i, p := range peers {
				requireFlat(t, p.name, before[i], p.sample)
			}
			tellAll(peers, command{Do: doStop})
			for _, p := range append(peers, scheduler) {
				require.Empty(t, p.end(), p.name)
			}
		})
	}
}
