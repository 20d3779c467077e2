package work

import (
	"encoding/binary"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/trace"
)

func times(t *testing.T, text string) Times {
	t.Helper()
	all, err := ParseTimes(text)
	require.NoError(t, err)
	return all
}

func TestDraws(t *testing.T) {
	const count = 10_000
	for text, c := range map[string]struct{ least, most, mean time.Duration }{
		"0":                   {0, 0, 0},
		"1ms":                 {time.Millisecond, time.Millisecond, time.Millisecond},
		"100us-1ms":           {100 * time.Microsecond, time.Millisecond, 550 * time.Microsecond},
		"90%100us+10%5ms":     {100 * time.Microsecond, 5 * time.Millisecond, 590 * time.Microsecond},
		"20%0+30%1s+50%2s-4s": {0, 4 * time.Second, 1800 * time.Millisecond},
	} {
		t.Run(text, func(t *testing.T) {
			one, other := newDraws(times(t, text)), newDraws(times(t, text))
			var sum time.Duration
			for range count {
				d := one.next()
				require.Equal(t, d, other.next(), "the same times for node and limit")
				require.GreaterOrEqual(t, d, c.least)
				require.LessOrEqual(t, d, c.most)
				sum += d
			}
			require.InEpsilon(t, float64(c.mean)+1, float64(sum/count)+1, 0.05)
		})
	}
}

func TestTheAnswererComputesAsLongAsThePushSays(t *testing.T) {
	s := Spec{Think: times(t, "200us-400us")}
	a, push := NewAsker(s), make([]byte, TimeBytes)
	for range 20 {
		task := a.Write(push)
		require.Equal(t, uint64(task.Think), binary.NativeEndian.Uint64(push))
		began := trace.Now()
		s.Answer(push)
		require.GreaterOrEqual(t, trace.Now()-began, int64(task.Think))
	}
}

// A push that does not come from an asker cannot hold the answerer for ever.
func TestNoPushMakesTheAnswererComputeLonger(t *testing.T) {
	s, push := Spec{Think: times(t, "1us")}, make([]byte, TimeBytes)
	for _, wrong := range []uint64{math.MaxUint64, math.MaxInt64, 1 << 63} {
		binary.NativeEndian.PutUint64(push, wrong)
		s.Answer(push)
	}
}

func TestNoWork(t *testing.T) {
	var s Spec
	require.False(t, s.Any())
	push := []byte{1}
	require.Zero(t, NewAsker(s).Write(push))
	s.Answer(push)
	require.Equal(t, []byte{1}, push)
}

func TestWorkAllocatesNothing(t *testing.T) {
	s := Spec{Think: times(t, "90%1us+10%1us-2us")}
	a, push := NewAsker(s), make([]byte, TimeBytes)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		a.Write(push)
		s.Answer(push)
	}))
}
