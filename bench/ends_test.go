package bench

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
)

// A run lasts until the last destination has ended it.
func TestRunsEndAtTheLastDestination(t *testing.T) {
	l := newLatencies()
	require.NoError(t, l.addRuns([]ends{{100, 500, 900}, {200, 700, 800}}))
	require.Equal(t, counts{600: 1, 200: 1}, l.counts())
	require.ErrorIs(t, l.addRuns(nil), stepvan.ErrInvalid)
	require.ErrorIs(t, l.addRuns([]ends{{1, 2}, {1}}), stepvan.ErrInvalid)
}

// The ends of a round keep their memory.
func TestEnds(t *testing.T) {
	e := newEnds()
	require.Zero(t, testing.AllocsPerRun(10, func() {
		e.begin()
		for range 100 {
			e.add()
		}
	}))
	require.Len(t, e, 101)
	require.IsNonDecreasing(t, []int64(e))
}

// Memory of this process grows with what it touches.
func TestOwnMemory(t *testing.T) {
	before, err := ownMemory()
	require.NoError(t, err)
	stop := watchMemory()
	touched := make([]byte, 64<<20)
	for i := range touched {
		touched[i] = 1
	}
	most, err := stop()
	require.NoError(t, err)
	require.GreaterOrEqual(t, most, before+48<<20)
	require.EqualValues(t, 1, touched[5])
}
