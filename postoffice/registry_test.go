package postoffice

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
)

// Whatever is registered in whatever order: no member that is accepted is left
// without a place, everybody gets what it asked for, and nothing is given twice.
func TestAssignGivesEverybodyAPlace(t *testing.T) {
	for seed := range uint64(500) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		group := 1 + rnd.IntN(4)
		r := &registry{role: stepvan.RoleWorker, size: group * (1 + rnd.IntN(5)), groupSize: group}
		for tries := 0; !r.complete(); tries++ {
			require.Less(t, tries, 100_000, "seed %d: places that nobody can have", seed)
			m := &member{want: joinBody{Rank: AnyRank, Instance: AnyLocalRank}}
			if rnd.IntN(2) == 0 {
				m.want.Rank = stepvan.Rank(rnd.IntN(r.size))
			}
			if rnd.IntN(2) == 0 {
				m.want.Instance = LocalRank(rnd.IntN(group))
			}
			err := r.add(m)
			if err == nil && rnd.IntN(5) == 0 {
				r.remove(m)
			}
		}
		r.assign()
		ranks, places := map[stepvan.Rank]bool{}, map[position]bool{}
		for _, m := range r.members {
			p := position{m.info.NodeRank, m.info.LocalRank}
			require.False(t, ranks[m.info.Rank] || places[p], "seed %d: %+v twice", seed, m.info)
			ranks[m.info.Rank], places[p] = true, true
			require.Equal(t, int(m.info.Rank)/group, m.info.NodeRank)
			require.Less(t, int(m.info.Rank), r.size)
			require.NotZero(t, m.info.ID)
			if m.want.Rank != AnyRank {
				require.Equal(t, m.want.Rank, m.info.Rank)
			}
			if m.want.Instance != AnyLocalRank {
				require.Equal(t, m.want.Instance, m.info.LocalRank)
			}
		}
	}
}

func TestMissing(t *testing.T) {
	r := &registry{role: stepvan.RoleServer, size: 4, groupSize: 2}
	a := &member{want: joinBody{Rank: 1, Instance: AnyLocalRank}}
	require.NoError(t, r.add(a))
	require.NoError(t, r.add(&member{want: joinBody{Rank: AnyRank, Instance: AnyLocalRank}}))
	free, count := r.missing()
	require.Equal(t, []int{0, 2, 3}, free)
	require.Equal(t, 2, count)
	r.remove(a)
	r.remove(a)
	free, count = r.missing()
	require.Len(t, free, 4)
	require.Equal(t, 3, count)
}

func TestTooManyOfOneIndex(t *testing.T) {
	r := &registry{role: stepvan.RoleServer, size: 4, groupSize: 2}
	want := func(i LocalRank) *member { return &member{want: joinBody{Rank: AnyRank, Instance: i}} }
	require.NoError(t, r.add(want(1)))
	require.NoError(t, r.add(want(1)))
	require.ErrorContains(t, r.add(want(1)), "all 2 server nodes have an instance 1 already")
	require.NoError(t, r.add(want(0)))
}
