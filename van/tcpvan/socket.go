package tcpvan

import (
	"net/netip"
	"strconv"

	"golang.org/x/sys/unix"
)

// Keep-alive finds machines that vanished: after keepIdle seconds without a
// byte, keepCount probes keepInterval seconds apart. TCP_USER_TIMEOUT is left alone: it
// would also end connections to a peer that merely does not read.
const (
	keepIdle     = 15
	keepInterval = 5
	keepCount    = 3
)

// tune sets the options of a connected socket. What the kernel refuses is left as it is.
func tune(fd int, unixSocket bool, buffer int) {
	if unixSocket && buffer == 0 {
		buffer = defaultUnixBuffer
	}
	if buffer > 0 {
		setBuffer(fd, unix.SO_SNDBUF, unix.SO_SNDBUFFORCE, buffer)
		setBuffer(fd, unix.SO_RCVBUF, unix.SO_RCVBUFFORCE, buffer)
	}
	if unixSocket {
		return
	}
	for _, o := range [...]struct{ level, name, value int }{
		{unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, keepIdle},
		{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, keepInterval},
		{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, keepCount},
	} {
		_ = unix.SetsockoptInt(fd, o.level, o.name, o.value)
	}
	if sameMachine(fd) {
		_ = unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, loopbackControl)
	}
}

// loopbackControl is the congestion control of connections within this machine: the one
// that every kernel has and allows. There is no congestion. A control that paces its packets
// (bbr) only adds timers, which cost half as much again for messages of some MiB.
const loopbackControl = "reno"

// sameMachine reports whether both ends of a TCP socket have the same address.
func sameMachine(fd int) bool {
	own, err := unix.Getsockname(fd)
	if err != nil {
		return false
	}
	peer, err := unix.Getpeername(fd)
	if err != nil {
		return false
	}
	a, b := addrPort(own), addrPort(peer)
	return a.IsValid() && a.Addr() == b.Addr()
}

// addrPort is the address of a TCP socket, and not valid for another socket.
func addrPort(s unix.Sockaddr) netip.AddrPort {
	switch a := s.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		ip := netip.AddrFrom16(a.Addr).Unmap()
		if a.ZoneId != 0 {
			ip = ip.WithZone(strconv.FormatUint(uint64(a.ZoneId), 10))
		}
		return netip.AddrPortFrom(ip, uint16(a.Port))
	}
	return netip.AddrPort{}
}

// setBuffer goes past the system's limit where the process may.
func setBuffer(fd, option, force, size int) {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, force, size) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, size)
	}
}
