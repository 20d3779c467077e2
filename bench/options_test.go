package bench

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/internal/errs"
)

func TestDefaults(t *testing.T) {
	o, err := Options{Node: []string{"x"}}.complete()
	require.NoError(t, err)
	require.Equal(t, Options{
		Workload: Echo, Van: TCP, Workers: 1, Servers: 1, Push: 8, Pull: 8, Inflight: 1,
		Progress: "auto", Duration: defaultDuration, Rounds: defaultRounds, Node: []string{"x"},
	}, o)
	o, err = Options{Workload: AFD, Van: Mem, Count: 5}.complete()
	require.NoError(t, err)
	require.Equal(t, []Size{896 << 10, 1792 << 10}, []Size{o.Push, o.Pull})
	require.Zero(t, o.Duration, "a count says how long")
}

func TestMistakesInOptions(t *testing.T) {
	node := []string{"x"}
	for name, c := range map[string]struct {
		o    Options
		want []string
	}{
		"unknown words":    {Options{Workload: "w", Van: "v", Progress: "p", Node: node}, []string{`--workload "w" is unknown: write echo, afd, start`, `--van "v" is unknown: write tcp, unix, mem`, `--progress "p"`}},
		"numbers":          {Options{Workers: -1, Servers: 1 << 20, Inflight: -2, Rounds: -1, Count: -1, Duration: -time.Second, Node: node}, []string{"--workers", "--servers", "--inflight", "--rounds", "--count", "--duration"}},
		"sizes":            {Options{Push: -1, Pull: -1, Bulk: -1, Pin: -1, Node: node}, []string{"--push", "--pull", "--bulk", "--pin"}},
		"echo answers":     {Options{Pull: 16, Node: node}, []string{"--pull 16B differs from --push 8B"}},
		"bulk with afd":    {Options{Workload: AFD, Bulk: 1, Node: node}, []string{"--bulk needs --workload echo"}},
		"start in process": {Options{Workload: Start, Van: Mem}, []string{"use --van tcp or unix"}},
		"profile of start": {Options{Workload: Start, Profile: "x", Node: node}, []string{"--profile"}},
		"pin one process":  {Options{Van: Mem, Pin: 1}, []string{"taskset"}},
		"no program":       {Options{}, []string{"Options.Node is missing"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Run(t.Context(), c.o)
			require.ErrorIs(t, err, errs.ErrInvalid)
			for _, part := range c.want {
				require.ErrorContains(t, err, part)
			}
		})
	}
}
