package vantest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stepvan/stepvan/van"
)

// The suite cannot hold a van to these cases when its factory says that it does not have what they need. The cases
// are in the order of the clauses. Only lossy vans skip any others.
var (
	twoSidedSkips = []string{
		"grants",
		"grants of both sides",
		"foreign, stale and short grants",
		"a peer that hears of a grant may write to it",
		"small segments travel with the head",
		"memory that is not registered",
		"a registration that ends under an operation",
		"withdrawal under fire",
		"views",
		"foreign, stale and short views",
		"a view after the end of its owner",
		"views hold up withdrawals",
		"a peer that hears of a grant knows it",
		"views under fire",
		"detached when no view is left",
		"detached in the end",
		"detachment under fire",
		"detached while the peer stands still",
	}
	noViewsSkips = []string{
		"views",
		"foreign, stale and short views",
		"a view after the end of its owner",
		"views hold up withdrawals",
		"a peer that hears of a grant knows it",
		"views under fire",
		"detached when no view is left",
	}
	viewsSkips = []string{
		"detached while the peer stands still",
	}
	noOffloadSkips = []string{
		"small segments travel with the head",
	}
	unregisteredSkips = []string{
		"memory that is not registered",
		"a registration that ends under an operation",
	}
	noProcessesSkips = []string{
		"ping-pong between processes",
		"a stream between processes",
		"a stopped process",
		"a killed process that floods",
		"a killed process that does not read",
		"a process that leaves",
	}
	noGreetingSkips = []string{
		"garbage instead of the greeting",
	}
)

// agrees says how the vans differ from what their factory says, and returns nil when they agree. Otherwise a van
// that lost an ability would skip the cases for it, and pass.
func (f *Factory) agrees(caps van.Caps) error {
	if caps.OneSided == f.TwoSided {
		return fmt.Errorf("vantest: %s: Caps.OneSided is %t and Factory.TwoSided %t", f.Name, caps.OneSided, f.TwoSided)
	}
	if views := !f.TwoSided && !f.NoViews; caps.Views != views {
		return fmt.Errorf("vantest: %s: Caps.Views is %t, with Factory.TwoSided %t and NoViews %t", f.Name, caps.Views, f.TwoSided, f.NoViews)
	}
	if caps.Offload != f.Offload {
		return fmt.Errorf("vantest: %s: Caps.Offload is %t and Factory.Offload %t", f.Name, caps.Offload, f.Offload)
	}
	if caps.Registered != f.Registered {
		return fmt.Errorf("vantest: %s: Caps.Registered is %t and Factory.Registered %t", f.Name, caps.Registered, f.Registered)
	}
	if caps.Lossy != f.Lossy {
		return fmt.Errorf("vantest: %s: Caps.Lossy is %t and Factory.Lossy %t", f.Name, caps.Lossy, f.Lossy)
	}
	return nil
}

// maySkip reports whether the vans of f are known to be unable to do what the case is about.
func (f *Factory) maySkip(name string) bool {
	views := viewsSkips
	if f.NoViews {
		views = noViewsSkips
	}
	return f.Lossy || f.TwoSided && slices.Contains(twoSidedSkips, name) || !f.TwoSided && slices.Contains(views, name) ||
		!f.Offload && slices.Contains(noOffloadSkips, name) || !f.Registered && slices.Contains(unregisteredSkips, name) ||
		f.NoProcesses && slices.Contains(noProcessesSkips, name) || f.NoGreeting && slices.Contains(noGreetingSkips, name)
}

func skip(t *testing.T, f *Factory, name, why string) {
	if !f.maySkip(name) {
		t.Fatalf("%q would be skipped, and is not among the cases that %s may skip: %s", name, f.Name, why)
	}
	t.Skip(why)
}
