package rdma

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/text"
)

// address is a parsed address.
type address struct {
	host string
	port uint16
}

func parseAddress(s string) (address, error) {
	host, port, err := net.SplitHostPort(s)
	n, perr := strconv.ParseUint(port, 10, 16)
	if err != nil || perr != nil {
		return address{}, errs.Invalid("%q: an address is host:port or [IPv6]:port", text.Cut(s))
	}
	return address{host, uint16(n)}, nil
}

// String is the address in the van's notation.
func (a address) String() string {
	return net.JoinHostPort(a.host, strconv.Itoa(int(a.port)))
}

// lookup finds the IP address that a means. An empty host stands for all addresses of this machine.
func (a address) lookup(ctx context.Context) (netip.AddrPort, error) {
	if a.host == "" {
		return netip.AddrPortFrom(netip.IPv4Unspecified(), a.port), nil
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", a.host)
	if err == nil && len(ips) == 0 {
		err = &net.DNSError{Err: "no address", Name: a.host}
	}
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%w: check the name, or give an IP address", err)
	}
	return netip.AddrPortFrom(ips[0].Unmap(), a.port), nil
}
