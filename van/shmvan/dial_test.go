package shmvan

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/van"
)

// silent is a socket that takes connections and says nothing, as a stopped process does.
func silent(t *testing.T) (path string, l *net.UnixListener) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "silent")
	l, err := net.ListenUnix(socketType, &net.UnixAddr{Name: path, Net: socketType})
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return path, l
}

// Only the context ends a dial to a listener that takes the connection and says nothing.
func TestDialToAStoppedListenerEndsWithItsContext(t *testing.T) {
	p := newParty(t, Options{})
	path, l := silent(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() {
		_, err := p.v.Dial(ctx, p.v.host.address(path))
		done <- err
	}()
	c, err := l.Accept()
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
}

func TestProbe(t *testing.T) {
	p := newParty(t, Options{})
	addr := p.listen()
	require.NoError(t, p.v.Probe(addr))

	path, l := silent(t)
	require.NoError(t, p.v.Probe(p.v.host.address(path)))
	l.SetUnlinkOnClose(false)
	require.NoError(t, l.Close())
	require.ErrorIs(t, p.v.Probe(p.v.host.address(path)), stepvan.ErrPeerLost, "the process that listened is gone")
	require.ErrorIs(t, p.v.Probe(p.v.host.address(path+"none")), unix.ENOENT)
	require.ErrorIs(t, p.v.Probe(p.v.host.address(t.TempDir())), stepvan.ErrNotSupported, "no socket")
	for addr, want := range map[string]string{
		strings.Repeat("0", 16) + "." + strconv.Itoa(os.Getuid()) + "/x":   "other machine",
		strings.Repeat("0", 16) + "." + strconv.Itoa(os.Getuid()+1) + "/x": "other machine",
		hostOf(os.Getuid()+1) + "/x":                                       "other user",
	} {
		err := p.v.Probe(addr)
		require.ErrorIs(t, err, stepvan.ErrNotSupported)
		require.ErrorContains(t, err, want)
	}
	for _, addr := range []string{"nonsense", "nonsense/x", "/x", machineID() + "/x", machineID() + "./x", machineID() + ".-1/x", machineID()[1:] + ".0/x", hostOf(1)} {
		require.ErrorIs(t, p.v.Probe(addr), stepvan.ErrInvalid, addr)
	}
}

// The system takes paths of about a hundred bytes only.
func TestLongDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 100))
	require.NoError(t, os.Mkdir(dir, 0o700))
	p, q := newParty(t, Options{Dir: dir}), newParty(t, Options{Dir: dir})
	addr := p.listen()
	require.NoError(t, q.v.Probe(addr))
	x := q.dial(addr)
	require.NoError(t, x.Send(message(1)))
	p.until(van.EventMessage).Delivery.Release()
	require.NoError(t, p.v.Close())
	require.Zero(t, count(t, dir), "the socket is left")
}

// A socket that a killed process has left goes at the next Listen.
func TestListenSweeps(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o700))
	left := filepath.Join(dir, "left")
	l, err := net.ListenUnix(socketType, &net.UnixAddr{Name: left, Net: socketType})
	require.NoError(t, err)
	l.SetUnlinkOnClose(false)
	require.NoError(t, l.Close())
	newParty(t, Options{Dir: dir}).listen()
	require.NoFileExists(t, left)
}
