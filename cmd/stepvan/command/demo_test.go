package command

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/internal/race"
)

func TestDemoWithoutModel(t *testing.T) {
	for van, carrier := range map[string]string{"": "shm (same machine)", "tcp": "tcp (STEPVAN_VAN=tcp)"} {
		t.Setenv("STEPVAN_VAN", van)
		path := filepath.Join(t.TempDir(), "trace.json")
		code, out, errOut := run(t, "demo", "--synthetic", "-n", "1w2s", "--exchanges", "8", "--trace", path)
		require.Zero(t, code, errOut)
		require.Contains(t, out, "896 KiB out")
		require.Contains(t, out, "\nTensors went by "+carrier+".\n")
		require.Regexp(t, `(?m)^exchange +16 `, out, "8 exchanges with 2 servers in the table")
		raw, err := os.ReadFile(path)
		require.NoError(t, err)
		require.True(t, json.Valid(raw))
	}
}

// What a demo that was killed has left is gone after the next one.
func TestKilledDemo(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	left := func() []string {
		files, err := filepath.Glob(filepath.Join(os.TempDir(), "stepvan*", "*demo*"))
		require.NoError(t, err)
		others, err := filepath.Glob(filepath.Join(os.TempDir(), "stepvan-demo*"))
		require.NoError(t, err)
		return append(files, others...)
	}
	p := start(t, "demo", "--synthetic", "-n", "1w1s", "--exchanges", "100000000", "--trace", filepath.Join(t.TempDir(), "trace.json"))
	p.line(t)
	require.NotEmpty(t, left())
	require.NoError(t, p.Process.Kill())
	require.Error(t, p.Wait())
	code, _, errOut := run(t, "demo", "--synthetic", "-n", "1w1s", "--exchanges", "8", "--trace", filepath.Join(t.TempDir(), "trace.json"))
	require.Zero(t, code, errOut)
	require.Empty(t, left())
}

// The model's own run is the demo of the Makefile; here it must be there only where the tests require it.
func TestDemoWithTheModel(t *testing.T) {
	if _, ok := os.LookupEnv("STEPVAN_TEST_REQUIRE_MODEL"); !ok {
		t.Skip("STEPVAN_TEST_REQUIRE_MODEL is not set: the model of 83 MB may not be there")
	}
	if race.Enabled {
		t.Skip("the demo without the model runs the same goroutines; under the race detector the model computes for a minute")
	}
	code, out, errOut := run(t, "demo", "-n", "1w2s", "--trace", filepath.Join(t.TempDir(), "trace.json"))
	require.Zero(t, code, errOut)
	require.Contains(t, out, "same embeddings, bit for bit")
	require.Contains(t, out, "It is a truth universally acknowledged")
}
