package reshard

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
)

// TestNames has the vectors that the tests in Python have, too.
func TestNames(t *testing.T) {
	text, err := os.ReadFile("testdata/names.json")
	require.NoError(t, err)
	var vectors struct {
		Layers map[string]int
		Cases  []struct {
			Name               string
			Experts, EP, Place int
			Resolved           string
			Number             *int
			Error              string
		}
	}
	require.NoError(t, json.Unmarshal(text, &vectors))
	require.NotEmpty(t, vectors.Cases)
	for _, x := range vectors.Cases {
		n := Names{Layers: vectors.Layers, Experts: x.Experts, EP: x.EP, Place: x.Place}
		resolved, number, err := n.Resolve(x.Name, x.EP > 0)
		if x.Error != "" {
			require.ErrorIs(t, err, stepvan.ErrInvalid, x.Name)
			require.ErrorContains(t, err, x.Error)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, x.Resolved, resolved)
		want := -1
		if x.Number != nil {
			want = *x.Number
		}
		require.Equal(t, want, number, x.Name)
	}
}
