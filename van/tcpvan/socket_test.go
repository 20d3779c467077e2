package tcpvan

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestSocketOptions(t *testing.T) {
	a, b := newParty(t, Options{SocketBuffer: 100_000}), newParty(t, Options{})
	out, in := connect(t, a, b, "127.0.0.1:0")
	for _, ep := range []*endpoint{out.(*endpoint), in.(*endpoint)} {
		fd := ep.rails[0].fd
		get := func(level, name int) int {
			v, err := unix.GetsockoptInt(fd, level, name)
			require.NoError(t, err)
			return v
		}
		require.Equal(t, 1, get(unix.IPPROTO_TCP, unix.TCP_NODELAY))
		require.Equal(t, 1, get(unix.SOL_SOCKET, unix.SO_KEEPALIVE))
		require.Equal(t, keepIdle, get(unix.IPPROTO_TCP, unix.TCP_KEEPIDLE))
		require.Equal(t, keepInterval, get(unix.IPPROTO_TCP, unix.TCP_KEEPINTVL))
		require.Equal(t, keepCount, get(unix.IPPROTO_TCP, unix.TCP_KEEPCNT))
		require.Zero(t, get(unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT), "a slow peer is not a lost one")
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		require.NoError(t, err)
		require.NotZero(t, flags&unix.O_NONBLOCK)
		flags, err = unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		require.NoError(t, err)
		require.NotZero(t, flags&unix.FD_CLOEXEC, "child processes must not hold connections")
		control, err := unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION)
		require.NoError(t, err)
		require.Equal(t, loopbackControl, control)
	}
	size, err := unix.GetsockoptInt(out.(*endpoint).rails[0].fd, unix.SOL_SOCKET, unix.SO_SNDBUF)
	require.NoError(t, err)
	require.Equal(t, 200_000, size, "the kernel doubles what is asked for")
}
