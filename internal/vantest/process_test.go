package vantest

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What this process and its children leave behind goes with the directory.
func TestTemporaryFilesGo(t *testing.T) {
	outer := t.TempDir()
	t.Setenv("TMPDIR", outer)
	clean, err := ownTemporary()
	require.NoError(t, err)
	dir := os.TempDir()
	require.Equal(t, outer, filepath.Dir(dir))
	out, err := exec.Command("mktemp").Output()
	require.NoError(t, err)
	require.Equal(t, dir, filepath.Dir(strings.TrimSpace(string(out))), "a child has the same one")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "s"), Net: "unix"})
	require.NoError(t, err)
	l.SetUnlinkOnClose(false) // as if it was killed
	require.NoError(t, l.Close())
	clean()
	left, err := os.ReadDir(outer)
	require.NoError(t, err)
	require.Empty(t, left)
}
