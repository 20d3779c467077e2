package sparing

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var counts []int
		var mu sync.Mutex
		l := New(3, 10*time.Second, func(left int) {
			mu.Lock()
			defer mu.Unlock()
			counts = append(counts, left)
		})
		reports := func() []int {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(counts)
		}
		said := 0
		say := func(times int) {
			for range times {
				if l.Allow() {
					said++
				}
			}
		}
		say(3)
		time.Sleep(11 * time.Second)
		require.Empty(t, reports(), "nothing was left out")
		say(5000)
		require.Equal(t, 6, said)
		time.Sleep(9 * time.Second)
		say(1)
		require.Empty(t, reports())
		time.Sleep(2 * time.Second)
		require.Equal(t, []int{4998}, reports())
		say(4)
		require.Equal(t, 9, said)
		l.End()
		require.Equal(t, []int{4998, 1}, reports())
		l.End()
		time.Sleep(time.Minute)
		require.Equal(t, []int{4998, 1}, reports())
	})
}

func TestEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var waits []time.Duration
		stop := Every(time.Second, func(waited time.Duration) { waits = append(waits, waited) })
		time.Sleep(2500 * time.Millisecond)
		stop()
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []time.Duration{time.Second, 2 * time.Second}, waits)
	})
}
