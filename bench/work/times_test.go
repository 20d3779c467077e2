package work

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
)

func TestTimes(t *testing.T) {
	const us, ms = time.Microsecond, time.Millisecond
	for text, c := range map[string]struct {
		want  Times
		again string // how String writes it; "" is as it was
	}{
		"0":                          {nil, ""},
		"0s":                         {nil, "0"},
		"100us":                      {Times{{1, 100 * us, 100 * us}}, ""},
		"0.1ms":                      {Times{{1, 100 * us, 100 * us}}, "100us"},
		" 1.5ms ":                    {Times{{1, 1500 * us, 1500 * us}}, "1.5ms"},
		"100us-1ms":                  {Times{{1, 100 * us, ms}}, ""},
		"0-1ms":                      {Times{{1, 0, ms}}, "0s-1ms"},
		"90%100us+10%5ms":            {Times{{0.9, 100 * us, 100 * us}, {0.1, 5 * ms, 5 * ms}}, ""},
		"50% 1ms-2ms + 50% 0":        {Times{{0.5, ms, 2 * ms}, {0.5, 0, 0}}, "50%1ms-2ms+50%0s"},
		"33.3%1ms+33.3%2ms+33.4%3s":  {Times{{0.333, ms, ms}, {0.333, 2 * ms, 2 * ms}, {0.334, 3 * time.Second, 3 * time.Second}}, ""},
		"100%1ms":                    {Times{{1, ms, ms}}, "1ms"},
		"100%0":                      {nil, "0"},
		"50%0+50%0s":                 {nil, "0"},
		"33.3333333%0+66.6666667%1s": {Times{{0.333333333, 0, 0}, {0.666666667, time.Second, time.Second}}, "33.3333333%0s+66.6666667%1s"},
	} {
		t.Run(text, func(t *testing.T) {
			got, err := ParseTimes(text)
			require.NoError(t, err)
			require.Equal(t, len(c.want), len(got))
			for i := range got {
				require.InDelta(t, c.want[i].Share, got[i].Share, 1e-9)
				require.Equal(t, []time.Duration{c.want[i].Least, c.want[i].Most}, []time.Duration{got[i].Least, got[i].Most})
			}
			again := c.again
			if again == "" {
				again = text
			}
			require.Equal(t, again, got.String())
			back, err := ParseTimes(again)
			require.NoError(t, err)
			require.Equal(t, got.String(), back.String())
		})
	}
}

func TestWrongTimes(t *testing.T) {
	for text, want := range map[string]string{
		"":                  `time "" of "" is unknown`,
		"100":               `time "100" of "100" is unknown: write 100us, 100us-1ms or 90%100us+10%5ms`,
		"-5us":              "is unknown",
		"1ms-":              `time "" of "1ms-" is unknown`,
		"1ms-2ms-3ms":       "is unknown",
		"1ms-100us":         `the range "1ms-100us" ends before it begins`,
		"2h":                "is out of range (got 2h0m0s, want 0 to 10s)",
		"90%100us+10":       `part "10" of "90%100us+10" has no share`,
		"90%100us+20%5ms":   "(got 110 %, want 100 %)",
		"90%100us":          "(got 90 %, want 100 %)",
		"0%1ms+100%2ms":     `part "0%1ms" of`,
		"NaN%1ms":           "has no share",
		"1e-323%1ms":        "is too small",
		"-10%1ms+110%2ms":   "has no share",
		"50%1ms+50%":        `time "" of "50%1ms+50%" is unknown`,
		"50%1ms+50%2ms-1ms": "ends before it begins",
		"1ms+2ms":           "is unknown",
	} {
		t.Run(text, func(t *testing.T) {
			_, err := ParseTimes(text)
			require.ErrorIs(t, err, stepvan.ErrInvalid)
			require.ErrorContains(t, err, want)
		})
	}
}

func FuzzParseTimes(f *testing.F) {
	for _, seed := range []string{"0", "100us", "100us-1ms", "90%100us+10%5ms", "1%1s-2s+99%0"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := ParseTimes(text)
		if err != nil {
			return
		}
		back, err := ParseTimes(got.String())
		require.NoError(t, err)
		require.Equal(t, len(got), len(back))
		require.LessOrEqual(t, got.most(), maxTime)
	})
}
