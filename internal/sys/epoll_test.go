package sys

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestAnEpollSetReportsAndWakes(t *testing.T) {
	e, err := OpenEpoll()
	require.NoError(t, err)
	defer e.Close()
	events := make([]unix.EpollEvent, 4)
	e.Wait(events) // the eventfd may show that it is there
	require.Zero(t, e.Wait(events))
	e.Wake()
	require.True(t, Shows(e.FD(), unix.POLLIN), "the set itself is readable")
	require.Equal(t, 1, e.Wait(events))
	require.Negative(t, events[0].Fd)
	require.Zero(t, e.Wait(events), "an edge is reported once")
	e.Wake()
	require.Equal(t, 1, e.Wait(events), "though nobody reads the eventfd")

	a, b := pair(t, unix.SOCK_STREAM)
	require.NoError(t, e.Add(a, unix.EPOLLIN, 7))
	_, no := Send(b, []byte("x"))
	require.Zero(t, no)
	require.Equal(t, 1, e.Wait(events))
	require.EqualValues(t, 7, events[0].Fd)
	require.NoError(t, e.Change(a, 0, 7))
	require.Zero(t, e.Wait(events))
	require.NoError(t, e.Remove(a))
	require.ErrorIs(t, e.Remove(a), unix.ENOENT)

	e.Close()
	e.Close()
	require.Negative(t, e.FD())
	require.Zero(t, e.Wait(events))
	require.Error(t, e.Add(a, unix.EPOLLIN, 7))
	e.Wake()
}

func pair(t *testing.T, kind int) (a, b int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { CloseAll(fds[:]) })
	return fds[0], fds[1]
}
