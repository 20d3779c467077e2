package particle_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/particle"
)

// module is what a program might keep of a particle.
type module struct {
	weight, gradient, momentum int
	away                       bool
}

// newStore makes a cache whose moves are noted.
func newStore(t *testing.T, policy particle.Policy, size int, moves *[]string, fail *error) *particle.Cache[module] {
	move := func(verb string, away bool) func(particle.ID, module) (module, error) {
		return func(id particle.ID, m module) (module, error) {
			if *fail != nil {
				return m, *fail
			}
			*moves = append(*moves, fmt.Sprint(verb, id))
			m.away = away
			return m, nil
		}
	}
	c, err := particle.NewCache(policy, size, move("in ", false), move("out ", true))
	require.NoError(t, err)
	return c
}

func TestCachesEvictByTheirPolicy(t *testing.T) {
	for policy, want := range map[particle.Policy][]string{
		particle.Direct: {"out 0", "out 1", "out 2", "in 0"},          // places: 2, 3; then 0 takes that of 2
		particle.LRU:    {"out 0", "out 1", "out 2", "in 0", "out 3"}, // and 1 takes that of 3 below
	} {
		var moves []string
		var fail error
		c := newStore(t, policy, 2, &moves, &fail)
		for id := range 4 {
			require.NoError(t, c.Create(particle.ID(id), module{weight: id, gradient: 10 * id, momentum: 100 * id}))
		}
		m, err := c.Read(0)
		require.NoError(t, err)
		require.Equal(t, module{}, m)
		require.Equal(t, want[:4], moves, policy)
		require.True(t, c.Resident(3))
		require.False(t, c.Resident(2))
		m, err = c.Read(1)
		require.NoError(t, err)
		require.Equal(t, module{1, 10, 100, false}, m, "all of its state has come back")
		require.Equal(t, "out 3", moves[4])
		require.Equal(t, []particle.ID{0, 1, 2, 3}, c.Particles())
		require.True(t, c.Contains(2))
		require.False(t, c.Contains(4))
	}
}

func TestUseCountsForTheLeastRecentlyUsed(t *testing.T) {
	var moves []string
	var fail error
	c := newStore(t, particle.LRU, 2, &moves, &fail)
	require.NoError(t, c.Create(0, module{}))
	require.NoError(t, c.Create(1, module{}))
	_, err := c.Read(0)
	require.NoError(t, err)
	require.NoError(t, c.Create(2, module{}))
	require.Equal(t, []string{"out 1"}, moves)
}

func TestPinnedModulesStay(t *testing.T) {
	for _, policy := range []particle.Policy{particle.Direct, particle.LRU} {
		var moves []string
		var fail error
		c := newStore(t, policy, 1, &moves, &fail)
		require.NoError(t, c.Create(0, module{weight: 5}))
		require.True(t, c.Pin(0))
		require.True(t, c.Pin(0))
		require.NoError(t, c.Unpin(0))
		require.ErrorIs(t, c.Create(1, module{}), stepvan.ErrBusy)
		require.False(t, c.Contains(1))
		require.NoError(t, c.Unpin(0))
		require.ErrorIs(t, c.Unpin(0), stepvan.ErrInvalid)
		require.NoError(t, c.Create(1, module{}))
		require.False(t, c.Pin(0), "it is away")
		require.True(t, c.Pin(1))
		_, err := c.Read(0)
		require.ErrorIs(t, err, stepvan.ErrBusy)
		require.NoError(t, c.Unpin(1))
		fail = errors.New("no room")
		_, err = c.Read(0)
		require.ErrorIs(t, err, fail)
		require.True(t, c.Resident(1), "nothing has changed")
		fail = nil
		m, err := c.Read(0)
		require.NoError(t, err)
		require.Equal(t, 5, m.weight)
		_, err = c.Read(7)
		require.ErrorIs(t, err, stepvan.ErrInvalid)
		require.ErrorIs(t, c.Create(0, module{}), stepvan.ErrInvalid)
	}
	_, err := particle.NewCache[module](particle.LRU, 0, nil, nil)
	require.ErrorIs(t, err, stepvan.ErrInvalid)
}
