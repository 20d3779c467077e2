package work

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
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
	a, push := NewAsker(s), make([]byte, WordBytes)
	for range 20 {
		task := a.Write(push)
		began := trace.Now()
		require.NoError(t, s.Answer(push, nil))
		require.GreaterOrEqual(t, trace.Now()-began, int64(task.Think))
	}
}

func TestTheAnswererSleepsAsLongAsThePushSays(t *testing.T) {
	s := Spec{Sleep: true, Think: times(t, "200us-400us")}
	a, push := NewAsker(s), make([]byte, WordBytes)
	for range 5 {
		task := a.Write(push)
		began := trace.Now()
		require.NoError(t, s.Answer(push, nil))
		require.GreaterOrEqual(t, trace.Now()-began, int64(task.Think))
	}
}

// A push that does not come from an asker cannot hold the answerer for ever.
func TestNoPushMakesTheAnswererComputeLonger(t *testing.T) {
	s, push := Spec{Think: times(t, "1us")}, make([]byte, WordBytes)
	for _, wrong := range []uint64{math.MaxUint64, math.MaxInt64, 1 << 63} {
		binary.NativeEndian.PutUint64(push, wrong)
		require.NoError(t, s.Answer(push, nil))
	}
}

func TestFreshBytes(t *testing.T) {
	for _, think := range []string{"0", "1us"} {
		for _, size := range []int{8, 24, patternBytes - 8, patternBytes, patternBytes + 8, 3*patternBytes + 40} {
			s := Spec{Fresh: true, Think: times(t, think)}
			require.NoError(t, s.Check(int64(size), int64(2*size)))
			a, push, answer := NewAsker(s), make([]byte, size), make([]byte, 2*size)
			for range 3 {
				pushBefore, answerBefore := slices.Clone(push), slices.Clone(answer)
				task := a.Write(push)
				require.NoError(t, s.Answer(push, answer))
				require.NoError(t, a.Read(task, answer))
				for at := 0; at < size; at += WordBytes {
					require.NotEqual(t, pushBefore[at:][:WordBytes], push[at:][:WordBytes], "word at %d of the push", at)
					require.NotEqual(t, answerBefore[at:][:WordBytes], answer[at:][:WordBytes], "word at %d of the answer", at)
				}
			}
		}
	}
}

// Bytes of another exchange, and bytes that have not arrived, are noticed wherever they are.
func TestOldBytesAreNoticed(t *testing.T) {
	const size = 2*patternBytes + 24
	s := Spec{Fresh: true}
	a, push, answer := NewAsker(s), make([]byte, size), make([]byte, size)
	a.Write(push)
	oldPush := slices.Clone(push)
	task := a.Write(push)
	require.NoError(t, s.Answer(oldPush, answer))
	require.Error(t, a.Read(task, answer), "the answer to the push before")
	for _, at := range []int{0, 8, patternBytes, size - 8} {
		torn := slices.Clone(push)
		copy(torn[at:][:WordBytes], oldPush[at:])
		require.Error(t, s.Answer(torn, answer), "the word at %d is old", at)
		require.NoError(t, s.Answer(push, answer))
		copy(answer[at:][:WordBytes], oldPush[at:])
		require.Error(t, a.Read(task, answer), "the word at %d is wrong", at)
	}
}

func TestSizesOfWork(t *testing.T) {
	for name, c := range map[string]struct {
		spec       Spec
		push, pull int64
		want       string
	}{
		"none":             {Spec{}, 1, 3, ""},
		"computing":        {Spec{Think: times(t, "1us")}, 8, 1, ""},
		"no room":          {Spec{Think: times(t, "1us")}, 7, 8, "a push of 7 bytes has no room for the time"},
		"fresh":            {Spec{Fresh: true}, 8, 16, ""},
		"half a word":      {Spec{Fresh: true}, 12, 16, "fresh bytes are whole words (got 12 and 16 bytes, want multiples of 8)"},
		"half a word back": {Spec{Fresh: true}, 8, 4, "got 8 and 4 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.spec.Check(c.push, c.pull)
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, stepvan.ErrInvalid)
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestNoWork(t *testing.T) {
	var s Spec
	require.False(t, s.Any())
	a, push := NewAsker(s), []byte{1}
	task := a.Write(push)
	require.Zero(t, task)
	require.Equal(t, []byte{1}, push)
	require.NoError(t, a.Read(task, nil))
}

func TestWorkAllocatesNothing(t *testing.T) {
	s := Spec{Think: times(t, "90%1us+10%1us-2us"), Fresh: true}
	a, push, answer := NewAsker(s), make([]byte, 1<<10), make([]byte, 2<<10)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		task := a.Write(push)
		if s.Answer(push, answer) != nil || a.Read(task, answer) != nil {
			panic("wrong bytes")
		}
	}))
}

func BenchmarkFresh(b *testing.B) {
	memory := make([]byte, 1<<20)
	b.SetBytes(int64(len(memory)))
	b.Run("write", func(b *testing.B) {
		b.SetBytes(int64(len(memory)))
		for b.Loop() {
			fill(memory, 1)
		}
	})
	b.Run("read", func(b *testing.B) {
		b.SetBytes(int64(len(memory)))
		for b.Loop() {
			filled(memory, 1)
		}
	})
}
