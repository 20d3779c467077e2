package shmvan

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stepvan/stepvan/internal/vantest"
	"github.com/stepvan/stepvan/internal/vantest/faults"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/van"
)

func TestMain(m *testing.M) { os.Exit(vantest.Main(m, factories()...)) }

// TestVan holds the van to the contract, one-sided and two-sided, with each way for payload to travel.
func TestVan(t *testing.T) {
	for _, f := range factories() {
		t.Run(f.Name, func(t *testing.T) { vantest.Run(t, f) })
	}
}

// TestWrapped holds the wrapper for faults to the contract while there is no fault.
func TestWrapped(t *testing.T) {
	f := factories()[0]
	f.New = faults.New(faults.Options{}).Wrap("", f.New)
	vantest.Run(t, f)
}

func FuzzPeer(f *testing.F) { vantest.Fuzz(f, factories()[0]) }

func factories() []vantest.Factory {
	return []vantest.Factory{
		factory("shm", Options{}),
		factory("shm-twosided", Options{TwoSided: true}),
		factory("shm-streamed", Options{NoForeign: true, RingBytes: minRing}),
	}
}

// memory is what the vans of this process share.
var memory = sync.OnceValue(func() *tensor.Allocator {
	a, err := tensor.NewAllocator(tensor.Options{Name: "vantest"})
	if err != nil {
		panic(err)
	}
	return a
})

func testDir() string { return filepath.Join(os.TempDir(), "stepvan-vantest") }

func factory(name string, o Options) vantest.Factory {
	o.Credits = 8
	o.Dir = testDir()
	return vantest.Factory{
		Name: name,
		New: func(p van.Placer, _ func()) (van.Van, error) {
			o := o
			o.Placer, o.Files = p, memory()
			return New(o)
		},
		Memory: func(n int) ([]byte, error) {
			r, err := memory().Alloc(n)
			if err != nil {
				return nil, err
			}
			return r.Bytes(), nil
		},
		Listen: anyName, BadAddr: "no path",
		Credits:    o.Credits,
		Boundaries: []int{defaultInline, chunkBytes},
		RawDial:    rawDial,
		GreetDial:  greetDial,
		TwoSided:   o.TwoSided,
	}
}
