package sys

import (
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestBytesGoThroughASocket(t *testing.T) {
	a, b := pair(t, unix.SOCK_STREAM)
	n, e := Sendmsg(a, []unix.Iovec{Iovec([]byte("one")), Iovec([]byte("two"))})
	require.Zero(t, e)
	require.Equal(t, 6, n)
	first, rest := make([]byte, 2), make([]byte, 8)
	n, e = Recv(b, first, unix.MSG_PEEK)
	require.Zero(t, e)
	require.Equal(t, "on", string(first[:n]))
	n, e = Readv(b, []unix.Iovec{Iovec(first), Iovec(rest)})
	require.Zero(t, e)
	require.Equal(t, "onetwo", string(first)+string(rest[:n-2]))
	_, e = Recv(b, rest, 0)
	require.Equal(t, Again, e)
	require.False(t, Shows(b, unix.POLLIN))
	require.NoError(t, unix.Shutdown(a, unix.SHUT_WR))
	require.True(t, Shows(b, unix.POLLRDHUP))
	n, e = Recv(b, rest, 0)
	require.Zero(t, e)
	require.Zero(t, n)
	_, e = Send(a, rest)
	require.Equal(t, syscall.EPIPE, e, "and no signal")
}

func TestADuplicateOutlivesItsConnection(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	fd, err := Duplicate(l.(syscall.Conn))
	require.NoError(t, err)
	require.NoError(t, l.Close())
	_, err = unix.Getsockname(fd)
	require.NoError(t, err)
	CloseAll([]int{fd})
	_, err = Duplicate(l.(syscall.Conn))
	require.ErrorIs(t, err, net.ErrClosed)
}

func TestDescriptorsGoThroughASocket(t *testing.T) {
	a, b := pair(t, unix.SOCK_SEQPACKET)
	var m MessageBuffer
	buffer := make([]byte, 4)
	_, _, err := m.Receive(b, buffer)
	require.ErrorIs(t, err, Again)

	require.NoError(t, SendRights(a, []byte("fds"), a, b))
	n, fds, err := m.Receive(b, buffer)
	require.NoError(t, err)
	require.Equal(t, "fds", string(buffer[:n]))
	require.Len(t, fds, 2)
	CloseAll(fds)

	require.NoError(t, SendRights(a, []byte("too long"), a))
	_, fds, err = m.Receive(b, buffer)
	require.ErrorIs(t, err, ErrCut)
	require.Empty(t, fds)

	require.NoError(t, SendRights(a, []byte("none")))
	require.Zero(t, testing.AllocsPerRun(1, func() { n, fds, err = m.Receive(b, buffer[:4]) }))
	require.Empty(t, fds)
	require.Nil(t, Rights([]byte("garbage that is longer than a header")))
}
