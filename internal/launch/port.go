package launch

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// reservation holds a TCP port on all addresses of this machine. The kernel does not choose it for
// sockets that ask for any free port. A socket that asks for it by number with SO_REUSEADDR can
// listen on it.
type reservation struct {
	fd   int
	port int
}

// reserve takes a free port. Machines without IPv6 get it for IPv4.
func reserve() (*reservation, error) {
	r, err := bind(unix.AF_INET6, &unix.SockaddrInet6{})
	if err != nil {
		r, err = bind(unix.AF_INET, &unix.SockaddrInet4{})
	}
	if err != nil {
		return nil, fmt.Errorf("reserve a port for the scheduler: %w", err)
	}
	return r, nil
}

// bind takes a free port of one address family; any has neither address nor port.
func bind(family int, any unix.Sockaddr) (r *reservation, err error) {
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	defer func() {
		if err != nil {
			_ = unix.Close(fd)
		}
	}()
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return nil, fmt.Errorf("SO_REUSEADDR: %w", err)
	}
	if family == unix.AF_INET6 { // IPv4 as well
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0); err != nil {
			return nil, fmt.Errorf("IPV6_V6ONLY: %w", err)
		}
	}
	if err := unix.Bind(fd, any); err != nil {
		return nil, fmt.Errorf("bind: %w", err)
	}
	name, err := unix.Getsockname(fd)
	switch a := name.(type) {
	case *unix.SockaddrInet6:
		return &reservation{fd, a.Port}, nil
	case *unix.SockaddrInet4:
		return &reservation{fd, a.Port}, nil
	}
	return nil, fmt.Errorf("getsockname: %w", err)
}

// close gives the port back.
func (r *reservation) close() { _ = unix.Close(r.fd) }
