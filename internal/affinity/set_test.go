package affinity

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
)

func TestLists(t *testing.T) {
	for text, want := range map[string]struct {
		short string
		cores []int
	}{
		"":               {"", []int{}},
		" \n":            {"", []int{}},
		"0":              {"0", []int{0}},
		"0-3,8\n":        {"0-3,8", []int{0, 1, 2, 3, 8}},
		"8,0-3":          {"0-3,8", []int{0, 1, 2, 3, 8}},
		"1,2,3,3":        {"1-3", []int{1, 2, 3}},
		"5-5":            {"5", []int{5}},
		"63-65,127":      {"63-65,127", []int{63, 64, 65, 127}},
		"8191":           {"8191", []int{8191}},
		"0,2,4-5,6,7,64": {"0,2,4-7,64", []int{0, 2, 4, 5, 6, 7, 64}},
	} {
		s, err := Parse(text)
		require.NoError(t, err, text)
		require.Equal(t, want.cores, s.Cores(), text)
		require.Equal(t, want.short, s.String(), text)
		require.Equal(t, len(want.cores), s.Len(), text)
	}
}

func TestBadLists(t *testing.T) {
	for text, part := range map[string]string{
		"a": `"a"`, "1,,2": `""`, "3-1": "backwards", "-1": `"-1"`, "1-": `"1-"`, "1-2-3": `"1-2-3"`, "8192": "8191",
		"0-99999999999999999999": `"0-99999999999999999999"`, "1 2": `"1 2"`, "+1": `"+1"`, "0x1": `"0x1"`,
	} {
		_, err := Parse(text)
		require.ErrorIs(t, err, stepvan.ErrInvalid, text)
		require.ErrorContains(t, err, part)
	}
}

func TestSetsOfSets(t *testing.T) {
	a, b := Range(0, 4), Range(2, 100)
	require.Equal(t, "2-3", a.And(b).String())
	require.Equal(t, "0-1", a.Minus(b).String())
	require.True(t, b.Has(101))
	require.False(t, b.Has(102) || b.Has(-1) || b.Has(MaxCores))
	require.Equal(t, "0-1", Range(-3, 5).String())
	require.Zero(t, Range(MaxCores, 3).Len())
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "0-3,8", "1,,", "9-1", "0-8191", "00001"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(text)
		if err != nil {
			require.ErrorIs(t, err, stepvan.ErrInvalid)
			return
		}
		again, err := Parse(s.String())
		require.NoError(t, err)
		require.Equal(t, s.Cores(), again.Cores())
		require.LessOrEqual(t, s.Len(), MaxCores)
		require.False(t, strings.Contains(s.String(), ",,"))
	})
}
