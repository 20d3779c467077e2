package rdma

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/stepvan/stepvan/internal/errs"
)

// A listener names the ports that it listens at, behind the hello of its first answer. The one that was asked comes
// first. The i-th port of the side that dials is paired with the i-th of these:
//
//	| address [16]u8 | port u16 | for each port
const (
	portBytes = 18
	maxPorts  = 7 // so that private data have room for them
)

// appendPorts adds the ports of the listeners to b: at first the one that was asked.
func (m *manager) appendPorts(b []byte, asked netip.AddrPort) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := []netip.AddrPort{asked}
	for _, id := range m.listeners {
		if at := id.Local(); !at.Addr().IsUnspecified() && !slices.Contains(list, at) && len(list) < maxPorts {
			list = append(list, at)
		}
	}
	for _, at := range list {
		ip := at.Addr().As16()
		b = append(b, ip[:]...)
		b = binary.LittleEndian.AppendUint16(b, at.Port())
	}
	return b
}

// readPorts reads the ports of the peer. What is left of b are zeros.
func readPorts(b []byte) (list []netip.AddrPort, err error) {
	for len(b) >= portBytes && binary.LittleEndian.Uint16(b[16:]) != 0 {
		if len(list) == maxPorts {
			return nil, errs.Protocol("private data", 0, "more than %d ports", maxPorts)
		}
		ip := netip.AddrFrom16([16]byte(b)).Unmap()
		list = append(list, netip.AddrPortFrom(ip, binary.LittleEndian.Uint16(b[16:])))
		b = b[portBytes:]
	}
	return list, onlyZeros(b)
}
