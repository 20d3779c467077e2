package progress

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const us = int64(time.Microsecond)

// historyOf is a history of waits of these lengths.
func historyOf(count int, length func(i int) int64) *history {
	h := &history{}
	for i := range count {
		h.note(length(i))
	}
	return h
}

// polled is how a waiter spends a wait of this length: the time that it polls, and whether it polls at the end. It
// wakes on time, and learns nothing.
func (h *history) polled(length int64) (sum int64, awake bool) {
	for at := int64(0); ; {
		o := h.forecast(at, leastSleep)
		switch {
		case o.pollUntil > 0:
			if sum, at = sum+min(o.pollUntil, length)-at, o.pollUntil; at >= length {
				return sum, true
			}
		case o.endsAt == 0 || o.endsAt >= length:
			return sum, false
		default:
			at = o.endsAt - leastSleep/2 // wakes early
			if at >= length {
				return sum, false
			}
			sum += leastSleep / 2
			at = o.endsAt
		}
	}
}

// What a waiter does follows what waits of its kind did before.
func TestTheForecastFollowsThePattern(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	between := func(least, most int64) func(int) int64 {
		return func(int) int64 { return least + rng.Int64N(most-least+1) }
	}
	for _, c := range []struct {
		name   string
		length func(int) int64
		awake  float64 // at least this share of the waits ends while the waiter polls
		polled float64 // at most this share of the time passes with polling
	}{
		{"100 us", between(100*us, 105*us), 0.97, 1},
		{"1 ms", between(1000*us, 1010*us), 0.97, 0.3},
		{"10 ms", between(10_000*us, 10_050*us), 0.97, 0.05},
		{"100 us to 1 ms", between(100*us, 1000*us), 0.9, 1},
		{"5 to 15 ms", between(5_000*us, 15_000*us), 0, 0.05},
		{"1 in 10 takes 5 ms", func(i int) int64 {
			if i%10 == 9 {
				return 5_000*us + rng.Int64N(20*us)
			}
			return 100*us + rng.Int64N(5*us)
		}, 0.97, 0.6},
		{"minutes", between(60e9, 120e9), 0, 0.001},
	} {
		h := historyOf(3*historyLength, c.length)
		var awake, polled, total float64
		const waits = 2000
		for i := range waits {
			length := c.length(i)
			sum, ok := h.polled(length)
			if ok {
				awake++
			}
			polled += float64(sum)
			total += float64(length)
			h.note(length)
		}
		require.GreaterOrEqual(t, awake/waits, c.awake, c.name)
		require.LessOrEqual(t, polled/total, c.polled, c.name)
	}
}

func TestNothingIsKnownAtFirst(t *testing.T) {
	require.Zero(t, new(history).forecast(30*us, leastSleep))
}

// A few waits are enough to learn another length.
func TestAnotherLengthIsLearnedSoon(t *testing.T) {
	h := historyOf(historyLength, func(int) int64 { return 100 * us })
	for range fewest + 1 {
		h.note(3000 * us)
	}
	o := h.forecast(300*us, leastSleep)
	require.Zero(t, o.pollUntil)
	require.EqualValues(t, 3000*us, o.endsAt)
}

func TestAHistoryForgets(t *testing.T) {
	h := historyOf(historyLength, func(int) int64 { return 5000 * us })
	for range historyLength {
		h.note(100 * us)
	}
	require.Equal(t, historyLength, h.count)
	require.Zero(t, h.forecast(1000*us, leastSleep))
	for _, n := range h.sorted {
		require.EqualValues(t, 100*us, n)
	}
}

func TestSortedHoldsWhatRecentHolds(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	h := &history{}
	for range 10 * historyLength {
		h.note(rng.Int64N(1 << 33)) // some are longer than what is noted
		require.IsNonDecreasing(t, h.sorted[:h.count])
		require.ElementsMatch(t, h.recent[:h.count], h.sorted[:h.count])
	}
	require.Zero(t, testing.AllocsPerRun(100, func() { h.note(rng.Int64N(1e6)); h.forecast(rng.Int64N(1e6), leastSleep) }))
}

func BenchmarkForecast(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	h := historyOf(historyLength, func(int) int64 { return 100*us + rng.Int64N(900*us) })
	for b.Loop() {
		h.note(100*us + rng.Int64N(900*us))
		h.forecast(rng.Int64N(1000*us), leastSleep)
	}
}
