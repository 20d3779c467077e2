package memvan_test

import (
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stepvan/stepvan/internal/vantest"
	"github.com/stepvan/stepvan/internal/vantest/faults"
	"github.com/stepvan/stepvan/van"
	"github.com/stepvan/stepvan/van/memvan"
)

const credits = 24

func factory(name string, opt memvan.Options) vantest.Factory {
	net := memvan.NewNetwork()
	maker := func(p van.Placer, wake func()) (van.Van, error) {
		o := opt
		o.Placer, o.Wake, o.Credits, o.Queue = p, wake, credits, 64
		return memvan.New(net, o)
	}
	return vantest.Factory{
		Name:        name,
		New:         maker,
		BadAddr:     "no address",
		Listen:      ":0",
		Credits:     credits,
		TwoSided:    !opt.OneSided,
		NoViews:     opt.NoViews,
		Offload:     opt.Offload,
		Registered:  opt.Device != nil,
		NoProcesses: true, NoGreeting: true,
		RawDial: faults.RawDial(maker),
	}
}

// hostile is a factory of the same vans with faults.
func hostile(f vantest.Factory, o faults.Options) vantest.Factory {
	f.New, f.Lossy = faults.New(o).Wrap("", f.New), o.LossRate > 0
	return f
}

var twoSided = factory("two-sided", memvan.Options{})

func TestMain(m *testing.M) { os.Exit(vantest.Main(m)) }

func TestContractTwoSided(t *testing.T) { vantest.Run(t, twoSided) }

func TestContractOneSided(t *testing.T) {
	vantest.Run(t, factory("one-sided", memvan.Options{OneSided: true}))
}

func TestContractWithoutViews(t *testing.T) {
	vantest.Run(t, factory("no-views", memvan.Options{OneSided: true, NoViews: true}))
}

func TestContractOffload(t *testing.T) {
	vantest.Run(t, factory("offload", memvan.Options{OneSided: true, NoViews: true, Offload: true}))
}

func TestContractRegistered(t *testing.T) {
	vantest.Run(t, factory("registered", memvan.Options{OneSided: true, NoViews: true, Offload: true, Device: new(memvan.Device)}))
}

// TestWrapped holds the wrapper for faults to the contract while there is no fault.
func TestWrapped(t *testing.T) {
	for _, o := range []memvan.Options{{}, {OneSided: true}, {OneSided: true, NoViews: true, Offload: true}} {
		vantest.Run(t, hostile(factory("wrapped", o), faults.Options{}))
	}
}

func TestContractReordered(t *testing.T) {
	f := factory("reordered", memvan.Options{OneSided: true})
	vantest.Run(t, hostile(f, faults.Options{Seed: 3, Reorder: true}))
}

func TestContractLossy(t *testing.T) {
	for _, oneSided := range []bool{false, true} {
		f := factory("lossy", memvan.Options{OneSided: oneSided})
		vantest.Run(t, hostile(f, faults.Options{Seed: 5, LossRate: 0.001}))
	}
}

// TestContractDelayed runs the suite on fake time over a network with delay and jitter.
func TestContractDelayed(t *testing.T) {
	for _, c := range vantest.Clauses() {
		synctest.Test(t, func(t *testing.T) {
			f := factory("delayed", memvan.Options{OneSided: true})
			f = hostile(f, faults.Options{Seed: 9, Delay: time.Millisecond, Jitter: 3 * time.Millisecond})
			f.Deadline = time.Hour
			for _, found := range c.Check(f) {
				t.Error(found)
			}
		})
	}
}

func FuzzPeer(f *testing.F) { vantest.Fuzz(f, twoSided) }
