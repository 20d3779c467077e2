package launch

import (
	"fmt"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestReservedPortCanBeListenedOn(t *testing.T) {
	r, err := reserve()
	require.NoError(t, err)
	defer r.close()
	for _, host := range []string{"127.0.0.1", "0.0.0.0", ""} {
		l, err := net.Listen("tcp", fmt.Sprintf("%s:%d", host, r.port))
		require.NoError(t, err, host)
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", r.port))
		require.NoError(t, err, host)
		require.NoError(t, c.Close())
		require.NoError(t, l.Close())
	}
}

func TestReservedPortIsGivenToNobodyElse(t *testing.T) {
	r, err := reserve()
	require.NoError(t, err)
	defer r.close()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer func() { _ = unix.Close(fd) }()
	require.ErrorIs(t, unix.Bind(fd, &unix.SockaddrInet4{Port: r.port}), unix.EADDRINUSE, "without SO_REUSEADDR the port is taken")

	others := make([]*reservation, 500)
	for i := range others {
		others[i], err = reserve()
		require.NoError(t, err)
		defer others[i].close()
		require.NotEqual(t, r.port, others[i].port)
	}
}

func TestReserveIPv4(t *testing.T) {
	r, err := bind(unix.AF_INET, &unix.SockaddrInet4{})
	require.NoError(t, err)
	defer r.close()
	require.NotZero(t, r.port)
}
