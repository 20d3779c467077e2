package shm

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
)

// deep is a directory whose sockets have paths that are too long for the kernel.
func deep(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 60), strings.Repeat("e", 60))
	require.NoError(t, os.MkdirAll(dir, 0o700))
	return dir
}

// listenAt makes a socket that nothing removes.
func listenAt(t *testing.T, path string) *net.UnixListener {
	t.Helper()
	short, release, err := SocketPath(path)
	require.NoError(t, err)
	defer release()
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: short, Net: "unixpacket"})
	require.NoError(t, err)
	l.SetUnlinkOnClose(false)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func TestSweepTakesOnlyWhatNobodyHas(t *testing.T) {
	for name, dir := range map[string]string{"short": t.TempDir(), "long": deep(t)} {
		t.Run(name, func(t *testing.T) {
			alive, left := filepath.Join(dir, "alive"), filepath.Join(dir, "left")
			file := filepath.Join(dir, "file")
			listenAt(t, alive)
			require.NoError(t, listenAt(t, left).Close())
			require.NoError(t, os.WriteFile(file, nil, 0o600))
			require.True(t, Abandoned(left))
			require.False(t, Abandoned(alive))
			require.True(t, Listening(alive))
			for _, path := range []string{left, file, dir, filepath.Join(dir, "none")} {
				require.False(t, Listening(path), path)
			}

			release := HoldSweep(dir)
			Sweep(dir)
			require.FileExists(t, left, "swept while it was held")
			release()
			Sweep(dir)
			require.NoFileExists(t, left)
			require.FileExists(t, alive)
			require.FileExists(t, file)
		})
	}
}

func TestSocketPathRefuses(t *testing.T) {
	_, _, err := SocketPath(filepath.Join(t.TempDir(), strings.Repeat("n", 120)))
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	_, _, err = SocketPath("/none/" + strings.Repeat("n", 120))
	require.ErrorIs(t, err, os.ErrNotExist)
	require.False(t, Abandoned("/none/"+strings.Repeat("n", 120)))
	Sweep("/none")
	HoldSweep("/none")()
}
