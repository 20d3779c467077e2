package parts

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCreditsAreAsManyAsWereMade(t *testing.T) {
	for _, n := range []int{1, 3, MaxCredits} {
		woken := 0
		c := NewCredits(n, func() { woken++ })
		var out []*Slot
		for s := c.Take(); s != nil; s = c.Take() {
			require.NotContains(t, out, s)
			out = append(out, s)
		}
		require.Len(t, out, n)
		require.True(t, c.Starved())
		for i, s := range out {
			s.Bytes = append(s.Bytes, make([]byte, 1+i*MaxKeptBytes)...)
			s.ReleaseDelivery(&s.Delivery)
		}
		require.Equal(t, 1, woken, "the first release alone")
		require.False(t, c.Starved())
		for range n {
			s := c.Take()
			require.Empty(t, s.Bytes)
			require.LessOrEqual(t, cap(s.Bytes), MaxKeptBytes)
		}
		require.Nil(t, c.Take())
	}
}

// The poller that found none hears of each release that may have come too late for it.
func TestNoReleaseIsMissed(t *testing.T) {
	const rounds = 10_000
	woken := make(chan struct{}, rounds)
	c := NewCredits(2, func() { woken <- struct{}{} })
	out := make(chan *Slot, 2)
	var releasing sync.WaitGroup
	releasing.Go(func() {
		for s := range out {
			s.ReleaseDelivery(&s.Delivery)
		}
	})
	for taken := 0; taken < rounds; {
		if s := c.Take(); s != nil {
			taken++
			out <- s
			continue
		}
		<-woken // one comes for each time that the poller found none
	}
	close(out)
	releasing.Wait()
}
