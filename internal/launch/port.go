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
func bind(family int, any unix.Sockaddr) (*reservation, error) {
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	r := &reservation{fd: fd}
	if err := r.take(family, any); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *reservation) take(family int, any unix.Sockaddr) error {
	if err := unix.SetsockoptInt(r.fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return fmt.Errorf("SO_REUSEADDR: %w", err)
	}
	if family == unix.AF_INET6 { // IPv4 as well
		if err := unix.SetsockoptInt(r.fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0); err != nil {
			return fmt.Errorf("IPV6_V6ONLY: %w", err)
		}
	}
	if err := unix.Bind(r.fd, any); err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	name, err := unix.Getsockname(r.fd)
	if err != nil {
		return fmt.Errorf("getsockname: %w", err)
	}
	switch a := name.(type) {
	case *unix.SockaddrInet6:
		r.port = a.Port
	case *unix.SockaddrInet4:
		r.port = a.Port
	}
	return nil
}

// close gives the port back.
func (r *reservation) close() { _ = unix.Close(r.fd) }
