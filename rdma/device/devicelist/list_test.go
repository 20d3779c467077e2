package devicelist

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
)

// One of the devices has two ports, and the name of one begins with that of another.
func TestLists(t *testing.T) {
	ports := []string{"mlx5_0:1", "mlx5_1:1", "mlx5_1:2", "mlx5_10:1", "mlx5_bond_0:1", "rxe0:1"}
	for list, want := range map[string]string{
		"":                    "mlx5_0:1 mlx5_1:1 mlx5_1:2 mlx5_10:1 mlx5_bond_0:1 rxe0:1",
		"  ":                  "mlx5_0:1 mlx5_1:1 mlx5_1:2 mlx5_10:1 mlx5_bond_0:1 rxe0:1",
		"mlx5":                "mlx5_0:1 mlx5_1:1 mlx5_1:2 mlx5_10:1 mlx5_bond_0:1",
		"mlx5_1":              "mlx5_1:1 mlx5_1:2 mlx5_10:1",
		"=mlx5_1":             "mlx5_1:1 mlx5_1:2",
		"=mlx5_1:2":           "mlx5_1:2",
		"mlx5_1:2":            "mlx5_1:2",
		"=mlx5_10,mlx5_0":     "mlx5_0:1 mlx5_10:1",
		"= mlx5_10 , mlx5_0 ": "mlx5_0:1 mlx5_10:1",
		"^mlx5":               "rxe0:1",
		"^=mlx5_1":            "mlx5_0:1 mlx5_10:1 mlx5_bond_0:1 rxe0:1",
		"^=mlx5_1:2,rxe0":     "mlx5_0:1 mlx5_1:1 mlx5_10:1 mlx5_bond_0:1",
		"=mlx5":               "",
	} {
		l, err := Parse(list)
		require.NoError(t, err, list)
		var got []string
		for _, p := range ports {
			e, err := parseEntry(p)
			require.NoError(t, err)
			if l.Allows(e.Name, e.Port) {
				got = append(got, p)
			}
		}
		require.Equal(t, want, strings.Join(got, " "), list)
	}
}

func TestPlacesAndWords(t *testing.T) {
	l, err := Parse("mlx5_3,mlx5:1")
	require.NoError(t, err)
	require.Equal(t, 0, l.Place("mlx5_3", 1))
	require.Equal(t, 1, l.Place("mlx5_0", 1))
	require.Equal(t, -1, l.Place("mlx5_0", 2))
	require.True(t, l.Names("mlx5_3", 2))
	require.Equal(t, "devices whose names begin with mlx5_3, mlx5:1", l.Describe())
	l, err = Parse("^=mlx5_3")
	require.NoError(t, err)
	require.False(t, l.Names("mlx5_0", 1), "it is allowed, and not named")
	require.Equal(t, "all but the devices mlx5_3", l.Describe())
}

func TestMistakes(t *testing.T) {
	for list, want := range map[string]string{
		"mlx5_0:":                  `the port of "mlx5_0:" must be a number`,
		"mlx5_0:0":                 "from 1 to 255",
		"mlx5_0:256":               "from 1 to 255",
		"mlx5_0:+1":                "from 1 to 255",
		"mlx5_0:x":                 "from 1 to 255",
		"mlx5_0:99999999999999999": "from 1 to 255",
		"mlx5_0,,mlx5_1":           `"" is not the name`,
		",":                        `"" is not the name`,
		"^":                        `"" is not the name`,
		"=":                        `"" is not the name`,
		"=^mlx5_0":                 `"^mlx5_0" is not the name`,
		"mlx5_0 mlx5_1":            "with commas between",
		"mlx5_0;mlx5_1":            "with commas between",
		"/dev/infiniband/uverbs0":  "is not the name",
		strings.Repeat("x", 64):    "is not the name",
		strings.Repeat("x", 5000):  "too long (got 5000 bytes",
	} {
		_, err := Parse(list)
		require.ErrorIs(t, err, stepvan.ErrInvalid, list)
		require.ErrorContains(t, err, want, list)
		require.Less(t, len(err.Error()), 500)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "mlx5", "^=mlx5_0:1,mlx5_1:1", "=^a", "a:1,b", "mlx5_0:999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		l, err := Parse(s)
		if err != nil {
			require.ErrorIs(t, err, stepvan.ErrInvalid)
			return
		}
		again, err := Parse(l.String())
		require.NoError(t, err)
		require.Equal(t, l, again)
		for _, e := range l.Entries {
			require.NotEqual(t, l.Exclude, l.Allows(e.Name, max(e.Port, 1)), "%q and %v", s, e)
		}
	})
}
