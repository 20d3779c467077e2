package bench

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
)

// files makes a folder with empty files, like those that the kernel makes.
func files(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	return dir
}

func TestTheQuotaOfBothVersions(t *testing.T) {
	for name, c := range map[string]map[string]string{
		"version 2": {maxFile: "150000 100000"},
		"version 1": {quotaFile: "150000", periodFile: "100000"},
	} {
		t.Run(name, func(t *testing.T) {
			var names []string
			for file := range c {
				names = append(names, file)
			}
			g := controlGroup{dir: files(t, names...)}
			require.NoError(t, g.limit(1.5))
			for file, want := range c {
				got, err := os.ReadFile(filepath.Join(g.dir, file))
				require.NoError(t, err)
				require.Equal(t, want, string(got))
			}
		})
	}
	g := controlGroup{dir: t.TempDir()}
	require.ErrorIs(t, g.limit(1.5), os.ErrNotExist, "a group without the cpu controller")
}

func TestThrottlingOfBothVersions(t *testing.T) {
	for text, want := range map[string]throttling{
		"usage_usec 9\nnr_periods 7\nnr_throttled 3\nthrottled_usec 2500\n":   {3, 2500 * time.Microsecond},
		"nr_periods 7\nnr_throttled 3\nthrottled_time 2500000\nnr_bursts 0\n": {3, 2500 * time.Microsecond},
		"": {},
	} {
		got, err := parseThrottling(text)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err := parseThrottling("nr_throttled many\n")
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	require.ErrorContains(t, err, `"many" for nr_throttled`)
	g := controlGroup{dir: files(t, statFile)}
	none, err := g.throttled()
	require.NoError(t, err)
	require.Zero(t, none)
	g.dir = t.TempDir()
	_, err = g.throttled()
	require.ErrorIs(t, err, os.ErrNotExist)
	later := throttling{count: 8, time: 3 * time.Second}
	require.Equal(t, Throttled{Count: 2.5, Time: 1}, later.since(throttling{count: 3, time: time.Second}).per(2*time.Second))
}

func TestWithoutAQuota(t *testing.T) {
	g, err := newControlGroup(0)
	require.NoError(t, err)
	require.Equal(t, []string{"program"}, g.command([]string{"stepvan"}, []string{"program"}))
	none, err := g.throttled()
	require.NoError(t, err)
	require.Zero(t, none)
	require.NoError(t, g.close())
}

// A command in a group runs by way of this program, which enters the group first.
func TestTheCommandInsideAGroup(t *testing.T) {
	g := &controlGroup{dir: "/g"}
	require.Equal(t, []string{"stepvan", "node", "--control=", "--inside=/g", "--", "program", "-x"}, g.command([]string{"stepvan", "node"}, []string{"program", "-x"}))
	require.ErrorIs(t, executeInside(t.TempDir(), []string{"true"}), os.ErrNotExist, "no group")
	require.ErrorContains(t, executeInside(files(t, procsFile), []string{"/nowhere/program"}), "run /nowhere/program with a quota")
}

// quotaOrSkip skips where this process may not make control groups.
func quotaOrSkip(t *testing.T) {
	t.Helper()
	g, err := newControlGroup(1)
	if errors.Is(err, ErrNoQuota) {
		require.ErrorContains(t, err, quotaNeeds)
		t.Skip(err)
	}
	require.NoError(t, err)
	require.NoError(t, g.close())
}

func TestNodesWithAQuota(t *testing.T) {
	quotaOrSkip(t)
	for name, o := range map[string]Options{
		"echo":   {Workload: Echo, Van: Shm, Count: 200},
		"pairs":  {Workload: Pairs, Count: 100, Progress: "park"},
		"Python": {Workload: Echo, Van: Shm, Count: 50, Nodes: NumpyNodes},
	} {
		t.Run(name, func(t *testing.T) {
			o.Cores.Quota = 0.5
			r, err := Run(t.Context(), options(t, o))
			require.NoError(t, err)
			require.Equal(t, 0.5, r.Variant.Quota)
			require.Empty(t, r.Limit)
			require.Len(t, r.Details.Samples.Throttled, len(r.Details.Samples.P50))
		})
	}
}

// No group stays behind.
func TestTheGroupOfAQuotaIsRemoved(t *testing.T) {
	quotaOrSkip(t)
	g, err := newControlGroup(1)
	require.NoError(t, err)
	defer g.close()
	pattern := filepath.Join(filepath.Dir(g.dir), "stepvan-bench-*")
	before := mustGlob(t, pattern)
	bad := options(t, Options{Count: 1, Cores: Cores{Quota: 1}})
	bad.Node = []string{"/bin/sh", "-c", "exit 3"}
	_, err = Run(t.Context(), bad)
	require.Error(t, err)
	require.Equal(t, before, mustGlob(t, pattern))
}

func mustGlob(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	require.NoError(t, err)
	return found
}
