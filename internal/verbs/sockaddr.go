package verbs

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan"
)

// sockaddr is an address as the kernel has it: sockaddr_in or sockaddr_in6.
type sockaddr [128]byte

// Where the fields are. The family has the order of the machine, the port that of the network.
const (
	portAt      = 2
	addr4At     = 4
	addr6At     = 8
	scopeAt     = 24
	addr4Length = 4
	addr6Length = 16
)

func newSockaddr(a netip.AddrPort) (s sockaddr, err error) {
	ip := a.Addr()
	binary.BigEndian.PutUint16(s[portAt:], a.Port())
	switch {
	case ip.Is4() || ip.Is4In6():
		binary.NativeEndian.PutUint16(s[:], unix.AF_INET)
		four := ip.Unmap().As4()
		copy(s[addr4At:], four[:])
	case ip.Is6():
		binary.NativeEndian.PutUint16(s[:], unix.AF_INET6)
		six := ip.As16()
		copy(s[addr6At:], six[:])
		if ip.Zone() != "" {
			scope, err := scopeOf(ip.Zone())
			if err != nil {
				return s, err
			}
			binary.NativeEndian.PutUint32(s[scopeAt:], uint32(scope))
		}
	default:
		return s, fmt.Errorf("%w: the address %v is neither IPv4 nor IPv6", stepvan.ErrInvalid, a)
	}
	return s, nil
}

// scopeOf is the index of the interface that a zone names.
func scopeOf(zone string) (int, error) {
	if n, err := strconv.Atoi(zone); err == nil && n > 0 {
		return n, nil
	}
	i, err := net.InterfaceByName(zone)
	if err != nil {
		return 0, fmt.Errorf("%w: no network interface %q", stepvan.ErrInvalid, zone)
	}
	return i.Index, nil
}

func (s *sockaddr) addrPort() netip.AddrPort {
	port := binary.BigEndian.Uint16(s[portAt:])
	switch binary.NativeEndian.Uint16(s[:]) {
	case unix.AF_INET:
		return netip.AddrPortFrom(netip.AddrFrom4([addr4Length]byte(s[addr4At:])), port)
	case unix.AF_INET6:
		ip := netip.AddrFrom16([addr6Length]byte(s[addr6At:]))
		if scope := binary.NativeEndian.Uint32(s[scopeAt:]); scope != 0 {
			ip = ip.WithZone(strconv.Itoa(int(scope)))
		}
		return netip.AddrPortFrom(ip, port)
	}
	return netip.AddrPort{}
}
