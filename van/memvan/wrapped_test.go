package memvan_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stepvan/stepvan/internal/vantest"
	"github.com/stepvan/stepvan/internal/vantest/faults"
	"github.com/stepvan/stepvan/van/memvan"
)

func wrapped(f vantest.Factory, o faults.Options) vantest.Factory {
	f.New = faults.New(o).Wrap("", f.New)
	f.Lossy = o.LossRate > 0
	return f
}

func TestWrapped(t *testing.T) {
	f := factory("one-sided", memvan.NetworkOptions{}, memvan.Options{OneSided: true})
	vantest.Run(t, wrapped(f, faults.Options{}))
}
func TestWrappedTwo(t *testing.T) {
	vantest.Run(t, wrapped(twoSided, faults.Options{}))
}
func TestWrappedReorder(t *testing.T) {
	f := factory("one-sided", memvan.NetworkOptions{}, memvan.Options{OneSided: true})
	vantest.Run(t, wrapped(f, faults.Options{Seed:3, Reorder:true}))
}
func TestWrappedLossy(t *testing.T) {
	f := factory("one-sided", memvan.NetworkOptions{}, memvan.Options{OneSided: true})
	vantest.Run(t, wrapped(f, faults.Options{Seed:3, LossRate:0.001}))
	vantest.Run(t, wrapped(twoSided, faults.Options{Seed:3, LossRate:0.001}))
}
func TestWrappedDelay(t *testing.T) {
	for _, c := range vantest.Clauses() {
		synctest.Test(t, func(t *testing.T) {
			f := factory("delayed", memvan.NetworkOptions{}, memvan.Options{OneSided: true})
			f = wrapped(f, faults.Options{Seed: 9, Delay: time.Millisecond, Jitter: 3 * time.Millisecond})
			f.Deadline = time.Hour
			for _, found := range c.Check(f) {
				t.Error(found)
			}
		})
	}
}
