package vantest

import (
	"io"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/van"
)

// A change that has a van skip one more case must write that down twice.
func TestSkipsAreListed(t *testing.T) {
	one := van.Caps{OneSided: true, Views: true}
	usual := slices.Concat(noOffloadSkips, unregisteredSkips, viewsSkips)
	for what, x := range map[string]struct {
		f    Factory
		caps van.Caps
		want []string
	}{
		"one-sided operations": {Factory{TwoSided: true}, van.Caps{}, twoSidedSkips},
		"views":                {Factory{NoViews: true, Offload: true}, van.Caps{OneSided: true, Offload: true}, slices.Concat(noViewsSkips, unregisteredSkips)},
		"processes":            {Factory{NoProcesses: true}, one, slices.Concat(noProcessesSkips, usual)},
		"a greeting":           {Factory{NoGreeting: true}, one, slices.Concat(noGreetingSkips, usual)},
		"anything":             {Factory{}, one, usual},
	} {
		var names []string
		for _, c := range Clauses() {
			for _, tc := range c.cases {
				if tc.need&needLossy == 0 && tc.unfit(&x.f, x.caps) != "" {
					names = append(names, tc.name)
				}
			}
		}
		require.ElementsMatch(t, x.want, names, what)
	}
}

// A factory that leaves something out must say so.
func TestFactoriesSayWhatTheyLack(t *testing.T) {
	whole := func() Factory {
		return Factory{
			Name: "x", Listen: "x", BadAddr: "x", Credits: 1,
			New:       func(van.Placer, func()) (van.Van, error) { return nil, nil },
			RawDial:   func(string) (io.ReadWriteCloser, error) { return nil, nil },
			GreetDial: func(string) (io.ReadWriteCloser, error) { return nil, nil },
		}
	}
	for name, x := range map[string]struct {
		edit func(*Factory)
		good bool
	}{
		"nothing":                {func(*Factory) {}, true},
		"a greeting":             {func(f *Factory) { f.GreetDial = nil }, false},
		"a greeting, on purpose": {func(f *Factory) { f.GreetDial, f.NoGreeting = nil, true }, true},
		"a greeting that it has": {func(f *Factory) { f.NoGreeting = true }, false},
		"processes, on purpose":  {func(f *Factory) { f.NoProcesses = true }, true},
		"a peer that is none":    {func(f *Factory) { f.RawDial = nil }, false},
	} {
		f := whole()
		x.edit(&f)
		require.Equal(t, x.good, f.check() == nil, name)
	}
}

func TestMaySkip(t *testing.T) {
	for _, c := range []struct {
		f    Factory
		name string
		want bool
	}{
		{Factory{}, "grants", false},
		{Factory{TwoSided: true}, "grants", true},
		{Factory{NoViews: true}, "grants", false},
		{Factory{NoViews: true}, "views", true},
		{Factory{}, "views", false},
		{Factory{}, "detached while the peer stands still", true},
		{Factory{NoViews: true}, "detached while the peer stands still", false},
		{Factory{NoViews: true}, "small segments travel with the head", true},
		{Factory{NoViews: true, Offload: true}, "small segments travel with the head", false},
		{Factory{TwoSided: true}, "once per message, inside its memory", false},
		{Factory{NoProcesses: true}, "a stopped process", true},
		{Factory{NoGreeting: true}, "a stopped process", false},
		{Factory{NoGreeting: true}, "garbage instead of the greeting", true},
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
		{Factory{}, van.Caps{OneSided: true, Views: true}, true},
		{Factory{}, van.Caps{OneSided: true}, false},
		{Factory{NoViews: true}, van.Caps{OneSided: true}, true},
		{Factory{NoViews: true}, van.Caps{OneSided: true, Offload: true}, false},
		{Factory{NoViews: true, Offload: true}, van.Caps{OneSided: true, Offload: true}, true},
		{Factory{NoViews: true, Offload: true}, van.Caps{OneSided: true, Offload: true, Registered: true}, false},
		{Factory{NoViews: true, Registered: true}, van.Caps{OneSided: true, Registered: true}, true},
		{Factory{NoViews: true}, van.Caps{OneSided: true, Views: true}, false},
		{Factory{}, van.Caps{}, false},
		{Factory{TwoSided: true}, van.Caps{}, true},
		{Factory{TwoSided: true}, van.Caps{OneSided: true}, false},
		{Factory{}, van.Caps{OneSided: true, Views: true, Lossy: true}, false},
		{Factory{Lossy: true}, van.Caps{OneSided: true, Views: true}, false},
		{Factory{Lossy: true, TwoSided: true}, van.Caps{Lossy: true}, true},
	} {
		require.Equal(t, c.good, c.f.agrees(c.caps) == nil, "%+v, %+v", c.f, c.caps)
	}
}
