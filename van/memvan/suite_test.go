package memvan_test

import (
	"io"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stepvan/stepvan/internal/vantest"
	"github.com/stepvan/stepvan/van"
	"github.com/stepvan/stepvan/van/memvan"
)

const credits = 24

func factory(name string, netOpt memvan.NetworkOptions, opt memvan.Options) vantest.Factory {
	net := memvan.NewNetwork(netOpt)
	return vantest.Factory{
		Name: name,
		New: func(p van.Placer, wake func()) (van.Van, error) {
			o := opt
			o.Placer, o.Wake, o.Credits, o.Queue = p, wake, credits, 64
			return memvan.New(net, o)
		},
		BadAddr:     "no address",
		Listen:      ":0",
		Credits:     credits,
		TwoSided:    !opt.OneSided,
		Lossy:       netOpt.LossRate > 0,
		NoProcesses: true, NoGreeting: true,
		RawDial: func(addr string) (io.ReadWriteCloser, error) { return net.DialRaw(addr) },
	}
}

var twoSided = factory("two-sided", memvan.NetworkOptions{}, memvan.Options{})

func TestMain(m *testing.M) { os.Exit(vantest.Main(m)) }

func TestContractTwoSided(t *testing.T) { vantest.Run(t, twoSided) }

func TestContractOneSided(t *testing.T) {
	f := factory("one-sided", memvan.NetworkOptions{}, memvan.Options{OneSided: true})
	vantest.Run(t, f)
}

func TestContractReordered(t *testing.T) {
	vantest.Run(t, factory("reordered", memvan.NetworkOptions{Seed: 3, Reorder: true}, memvan.Options{OneSided: true}))
}

func TestContractLossy(t *testing.T) {
	vantest.Run(t, factory("lossy", memvan.NetworkOptions{Seed: 5, LossRate: 0.001}, memvan.Options{}))
}

// TestContractDelayed runs the suite on fake time over a network with delay and jitter.
func TestContractDelayed(t *testing.T) {
	for _, c := range vantest.Clauses() {
		synctest.Test(t, func(t *testing.T) {
			f := factory("delayed", memvan.NetworkOptions{Seed: 9, Delay: time.Millisecond, Jitter: 3 * time.Millisecond}, memvan.Options{OneSided: true})
			f.Deadline = time.Hour
			for _, found := range c.Check(f) {
				t.Error(found)
			}
		})
	}
}

func FuzzPeer(f *testing.F) { vantest.Fuzz(f, twoSided) }
