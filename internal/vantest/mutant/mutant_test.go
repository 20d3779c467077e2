package mutant

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stepvan/stepvan/internal/race"
	"github.com/stepvan/stepvan/internal/vantest"
	"github.com/stepvan/stepvan/internal/vantest/faults"
	"github.com/stepvan/stepvan/van"
	"github.com/stepvan/stepvan/van/memvan"
)

const credits = 24

// onMemvan is memvan with a mutation. It is made inside the bubble in which it is used.
func onMemvan(m Mutation, o memvan.Options) vantest.Factory {
	net, device := memvan.NewNetwork(), new(memvan.Device)
	maker := func(p van.Placer, wake func()) (van.Van, error) {
		o := o
		if o.Device != nil {
			o.Device = device
		}
		o.Placer, o.Wake, o.Credits, o.Queue = p, wake, credits, 64
		return memvan.New(net, o)
	}
	return Wrap(vantest.Factory{
		Name:        "mem",
		New:         maker,
		Listen:      ":0",
		BadAddr:     "no address",
		Credits:     credits,
		NoViews:     o.NoViews,
		Offload:     o.Offload,
		Registered:  o.Device != nil,
		NoProcesses: true, NoGreeting: true,
		RawDial: faults.RawDial(maker),
	}, m)
}

// forms are the one-sided forms of memvan.
var forms = map[string]memvan.Options{
	"views":    {OneSided: true},
	"no views": {OneSided: true, NoViews: true},
	"offload":  {OneSided: true, NoViews: true, Offload: true},
	"device":   {OneSided: true, NoViews: true, Offload: true, Device: new(memvan.Device)},
}

// check runs the clauses against memvan with a mutation, on fake time: a wait
// in vain costs nothing.
func check(t *testing.T, m Mutation, o memvan.Options, run func(vantest.Clause) bool) (found []vantest.Failure) {
	for _, c := range vantest.Clauses() {
		if run(c) {
			synctest.Test(t, func(*testing.T) { found = append(found, c.Check(onMemvan(m, o))...) })
		}
	}
	return found
}

func TestNoMutationPasses(t *testing.T) {
	for form, o := range forms {
		for _, f := range check(t, None, o, func(vantest.Clause) bool { return true }) {
			t.Error(form, f)
		}
	}
}

func TestEveryMutationIsCaught(t *testing.T) {
	if race.Enabled {
		t.Skip("some mutations race, and the detector would fail the test for it; it watches the suite in the tests of the vans")
	}
	for form, o := range forms {
		mutations := Mutations()
		if o.NoViews {
			mutations = GrantMutations() // the others have nothing to do with views
		}
		if o.Offload {
			mutations = append(mutations, OffloadMutations()...)
		}
		if o.Device != nil {
			mutations = RegisteredMutations() // the others have nothing to do with registration
		}
		for _, m := range mutations {
			t.Run(form+"/"+m.Name, func(t *testing.T) { requireCaught(t, m, o) })
		}
	}
}

// requireCaught fails unless the suite finds that a van with the mutation violates one of its clauses.
func requireCaught(t *testing.T, m Mutation, o memvan.Options) {
	t.Parallel()
	found := check(t, m, o, func(c vantest.Clause) bool { return slices.Contains(m.Clauses, c.Number) })
	blamed := false
	for _, f := range found {
		t.Log(f)
		blamed = blamed || slices.Contains(m.Clauses, f.Clause)
	}
	switch {
	case len(found) == 0:
		t.Errorf("the suite passes a van that %s", m.Name)
	case !blamed:
		t.Errorf("a van that %s is not found to violate clause %v", m.Name, m.Clauses)
	}
}
