package shm

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// left makes the file of a socket that no process has any more.
func left(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	require.NoError(t, err)
	l.SetUnlinkOnClose(false)
	require.NoError(t, l.Close())
}

func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// A sweep removes only sockets that no process has any more, and a listener notices nothing of it.
func TestSweep(t *testing.T) {
	dir := t.TempDir()
	left(t, filepath.Join(dir, "left"))
	l, err := net.Listen("unix", filepath.Join(dir, "listening"))
	require.NoError(t, err)
	defer l.Close()
	for name, kind := range map[string]int{"bound": unix.SOCK_STREAM, "packets": unix.SOCK_SEQPACKET, "datagrams": unix.SOCK_DGRAM} {
		fd, err := unix.Socket(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
		require.NoError(t, err)
		defer unix.Close(fd)
		require.NoError(t, unix.Bind(fd, &unix.SockaddrUnix{Name: filepath.Join(dir, name)}))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	Sweep(dir)
	require.Equal(t, []string{"bound", "datagrams", "file", "listening", "packets"}, names(t, dir))

	accepted := make(chan error, 1)
	go func() {
		_, err := l.Accept()
		accepted <- err
	}()
	require.NoError(t, l.Close())
	require.ErrorIs(t, <-accepted, net.ErrClosed, "the sweep has connected")
}

// A process that binds a socket keeps sweepers away until it is done. A sweeper does not wait.
func TestSweepKeepsAwayFromWhoBinds(t *testing.T) {
	dir := t.TempDir()
	left(t, filepath.Join(dir, "half made"))
	first, second := HoldSweep(dir), HoldSweep(dir)
	Sweep(dir)
	first()
	Sweep(dir)
	require.NotEmpty(t, names(t, dir))
	second()
	Sweep(dir)
	require.Empty(t, names(t, dir))
	Sweep(filepath.Join(dir, "missing"))
	HoldSweep(filepath.Join(dir, "missing"))()
}

// A sweeper that was stopped in the middle delays a start, and does not end it.
func TestStuckSweeper(t *testing.T) {
	dir := t.TempDir()
	release, err := lock(dir, unix.LOCK_EX)
	require.NoError(t, err)
	defer release()
	HoldSweep(dir)()
}

// Only a directory that is the user's alone is tidied, and none is made.
func TestSweepSocketDir(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	SweepSocketDir()
	require.NoDirExists(t, SocketDir())
	require.NoError(t, os.Mkdir(SocketDir(), 0o700))
	left := filepath.Join(SocketDir(), "left")
	require.NoError(t, listenAt(t, left).Close())
	require.NoError(t, os.Chmod(SocketDir(), 0o755))
	SweepSocketDir()
	require.FileExists(t, left)
	require.NoError(t, os.Chmod(SocketDir(), 0o700))
	SweepSocketDir()
	require.NoFileExists(t, left)
}
