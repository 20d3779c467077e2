package config

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParseBytes(t *testing.T) {
	good := map[string]Bytes{
		"0": 0, "17": 17, "64KiB": 64 << 10, "64kib": 64 << 10, "64K": 64 << 10, "3 MiB": 3 << 20,
		"2G": 2 << 30, "1TiB": 1 << 40, "5B": 5,
		"1.5GiB": 3 << 29, "12.0B": 12, "0.25k": 256, " 8 ": 8,
	}
	for text, want := range good {
		got, err := ParseBytes(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
		again, err := ParseBytes(got.String())
		require.NoError(t, err)
		require.Equal(t, got, again)
	}
	for _, text := range []string{"", "KiB", "-1", "1.3", "0.3KiB", "1e3", "1/2", "0x8", "1_0", ".", "1.2.3", "1KB", "1PiB", "9223372036854775808", "8388608TiB", "1 2", "1KiBKiB"} {
		_, err := ParseBytes(text)
		require.Error(t, err, text)
	}
	require.Equal(t, "1536KiB", Bytes(1536<<10).String())
}

func TestDuration(t *testing.T) {
	good := map[string]time.Duration{"1": time.Second, "0.5": time.Second / 2, "250ms": time.Second / 4, "1h": time.Hour, "0": 0}
	for text, want := range good {
		got, err := parseDuration(text, time.Second)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "-1", "-1s", "nan", "inf", "1e300", "9223372037", "1 s", "ten"} {
		_, err := parseDuration(text, time.Second)
		require.Error(t, err, text)
	}
	for want, d := range map[string]time.Duration{"10m": 10 * time.Minute, "2h": 2 * time.Hour, "1h30m": 90 * time.Minute, "10s": 10 * time.Second, "0s": 0, "1h0m5s": time.Hour + 5*time.Second} {
		require.Equal(t, want, formatDuration(d))
	}
}

func TestDistance(t *testing.T) {
	cases := []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"abc", "", 3}, {"", "ab", 2}, {"abc", "abc", 0}, {"abc", "acb", 1}, {"kitten", "sitting", 3}, {"ab", "cd", 2},
	}
	for _, c := range cases {
		require.Equal(t, c.want, distance(c.a, c.b), "%s %s", c.a, c.b)
		require.Equal(t, c.want, distance(c.b, c.a), "%s %s", c.b, c.a)
	}
	require.Equal(t, "", nearest("STEPVAN_SOMETHING_ELSE", knownNames))
}
