package modelfiles

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// fakePip puts programs of the given names in front of an otherwise empty PATH.
func fakePip(t *testing.T, scripts map[string]string) {
	t.Helper()
	dir := t.TempDir()
	for name, body := range scripts {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+body), 0o700))
	}
	t.Setenv("PATH", dir)
}

func TestPipIsAskedForTheHash(t *testing.T) {
	into := t.TempDir()
	fakePip(t, map[string]string{"python3": `echo "$@" > "` + into + `/arguments"`})
	require.NoError(t, pipDownload(t.Context(), "x==1 --hash=sha256:00", into))
	arguments, err := os.ReadFile(filepath.Join(into, "arguments"))
	require.NoError(t, err)
	for _, want := range []string{"-m pip download", "--no-deps", "--require-hashes", "--only-binary :all:", "--dest " + into} {
		require.Contains(t, string(arguments), want)
	}
	list, err := os.ReadFile(filepath.Join(into, "requirements.txt"))
	require.NoError(t, err)
	require.Equal(t, "x==1 --hash=sha256:00\n", string(list))
}

func TestPipCommandsAreTriedInTurn(t *testing.T) {
	fakePip(t, map[string]string{
		"python3": "echo /usr/bin/python3: No module named pip >&2; exit 1",
		"pip":     "exit 0",
	})
	require.NoError(t, pipDownload(t.Context(), "x==1", t.TempDir()))
}

func TestPipFailureIsQuoted(t *testing.T) {
	fakePip(t, map[string]string{"python3": "echo one; echo two; echo three; echo four >&2; exit 3", "pip": "exit 0"})
	err := pipDownload(t.Context(), "x==1", t.TempDir())
	require.EqualError(t, err, "python3 -m pip: exit status 3: two; three; four")
}

func TestPipMissing(t *testing.T) {
	fakePip(t, nil)
	err := pipDownload(t.Context(), "x==1", t.TempDir())
	require.ErrorContains(t, err, "python3")
	require.ErrorContains(t, err, "pip3")
}
