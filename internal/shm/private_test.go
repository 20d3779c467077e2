package shm

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPrivateDir(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "own")
	require.NoError(t, PrivateDir(dir))
	require.NoError(t, PrivateDir(dir), "it is there")
	fi, err := os.Stat(dir)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), fi.Mode().Perm())

	open := filepath.Join(base, "open")
	require.NoError(t, os.Mkdir(open, 0o700))
	require.NoError(t, os.Chmod(open, 0o750))
	require.ErrorContains(t, PrivateDir(open), "others than this user can enter "+open)
	link := filepath.Join(base, "link")
	require.NoError(t, os.Symlink(dir, link))
	require.ErrorContains(t, PrivateDir(link), "others than this user", "a link may lead anywhere later")
	file := filepath.Join(base, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.ErrorContains(t, PrivateDir(file), "others than this user")
	require.ErrorIs(t, PrivateDir(filepath.Join(base, "no", "parent")), os.ErrNotExist)
	t.Chdir(base)
	require.ErrorContains(t, PrivateDir("relative"), "set TMPDIR to an absolute path")
	require.NoDirExists(t, "relative")
	if os.Getuid() == 0 { // only root can give something away
		require.NoError(t, os.Chown(dir, 65534, 65534))
		require.ErrorContains(t, PrivateDir(dir), "others than this user")
	}
}
