package worker_test

import (
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	. "github.com/stepvan/stepvan/internal/pairtest"
)

// Sixteen waiters, two servers and all their drivers share one core. A waiter that spins must let the others work.
func TestSixteenGoroutinesWaitForSixteenHandlesOnOneCore(t *testing.T) {
	forVans(t, func(t *testing.T, v Van) {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
		c := New(t, Options{Workers: 1, Servers: 2, Van: v})
		var served, driven sync.WaitGroup
		for i, s := range c.Servers {
			served.Go(func() {
				if err := serve(Context(t), s, stepvan.AnyReady, float32(i+1)); err != nil {
					t.Error(err)
				}
			})
		}
		for g := range 16 {
			driven.Go(func() {
				if err := drive(c.Workers[0].Worker, g, 20); err != nil {
					t.Error(err)
				}
			})
		}
		driven.Wait()
		require.NoError(t, c.Workers[0].Transport.Close())
		served.Wait()
	})
}
