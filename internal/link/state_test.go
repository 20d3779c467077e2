package link

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A session may skip states, and never goes back to one.
func TestTheStateOfASessionOnlyRises(t *testing.T) {
	for from := stateHandshake; from <= stateLost; from++ {
		for to := stateHandshake; to <= stateLost; to++ {
			state := from
			require.Equal(t, to > from, state.advance(to), "from %d to %d", from, to)
			require.Equal(t, max(from, to), state, "from %d to %d", from, to)
		}
	}
}
