package shm

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a process has left is swept, what one has is not, and neither is a directory of another kind.
func TestScratch(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "private")
	mine, remove, err := Scratch(dir, "mine")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(mine, "file"), nil, 0o600))
	left := filepath.Join(dir, scratchPrefix+"left.1")
	require.NoError(t, os.MkdirAll(filepath.Join(left, "deep"), 0o700))
	other := filepath.Join(dir, "other")
	require.NoError(t, os.Mkdir(other, 0o700))
	Sweep(dir)
	require.NoDirExists(t, left)
	require.FileExists(t, filepath.Join(mine, "file"))
	require.NoError(t, remove())
	require.Equal(t, []string{"other"}, names(t, dir))
}

func TestScratchNeedsAPrivateDirectory(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o755))
	_, _, err := Scratch(dir, "mine")
	require.ErrorContains(t, err, "others than this user can enter")
}
