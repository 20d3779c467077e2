package vantest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/van"
)

// Whoever lets a van skip one more case has to write it down twice.
func TestSkipsAreListed(t *testing.T) {
	var names []string
	for _, c := range Clauses() {
		for _, tc := range c.cases {
			if tc.unfit(van.Caps{}) != "" && tc.need&needLossy == 0 {
				names = append(names, tc.name)
			}
			require.True(t, tc.need&needLossy != 0 || tc.unfit(van.Caps{OneSided: true}) == "", "%q suits no van", tc.name)
		}
	}
	require.Equal(t, twoSidedSkips, names)
}

func TestMaySkip(t *testing.T) {
	for _, c := range []struct {
		f    Factory
		name string
		want bool
	}{
		{Factory{}, "grants", false},
		{Factory{TwoSided: true}, "grants", true},
		{Factory{TwoSided: true}, "once per message, inside its memory", false},
		{Factory{Lossy: true}, "once per message, inside its memory", true},
	} {
		require.Equal(t, c.want, c.f.maySkip(c.name), "%+v, %q", c.f, c.name)
	}
}

func TestVansAreWhatTheirFactorySays(t *testing.T) {
	for _, c := range []struct {
		f    Factory
		caps van.Caps
		good bool
	}{
		{Factory{}, van.Caps{OneSided: true}, true},
		{Factory{}, van.Caps{}, false},
		{Factory{TwoSided: true}, van.Caps{}, true},
		{Factory{TwoSided: true}, van.Caps{OneSided: true}, false},
		{Factory{}, van.Caps{OneSided: true, Lossy: true}, false},
		{Factory{Lossy: true}, van.Caps{OneSided: true}, false},
		{Factory{Lossy: true, TwoSided: true}, van.Caps{Lossy: true}, true},
	} {
		require.Equal(t, c.good, c.f.agrees(c.caps) == nil, "%+v, %+v", c.f, c.caps)
	}
}
