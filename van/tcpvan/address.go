package tcpvan

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/text"
)

// address is a parsed address: text is a path or @name when unix, else host:port.
type address struct {
	unix bool
	text string
}

const (
	unixScheme  = "unix:"
	maxUnixPath = 107 // sun_path less its final zero
)

func parseAddress(s string) (address, error) {
	if path, ok := strings.CutPrefix(s, unixScheme); ok {
		if path == "" || path == "@" || len(path) > maxUnixPath || strings.ContainsRune(path, 0) {
			return address{}, errs.Invalid("%q: a Unix socket is unix:/path or unix:@name, of at most %d bytes", text.Cut(s), maxUnixPath)
		}
		return address{true, path}, nil
	}
	_, port, err := net.SplitHostPort(s)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return address{}, errs.Invalid("%q: an address is host:port, [IPv6]:port, unix:/path or unix:@name", text.Cut(s))
	}
	return address{false, s}, nil
}

// String is the address in the van's notation.
func (a address) String() string {
	if a.unix {
		return unixScheme + a.text
	}
	return a.text
}

func (a address) network() string {
	if a.unix {
		return "unix"
	}
	host, _, _ := net.SplitHostPort(a.text)
	if ip, err := netip.ParseAddr(host); err == nil && ip.Is4() {
		return "tcp4" // else 0.0.0.0 would mean IPv6 too
	}
	return "tcp"
}

func (a address) abstract() bool { return a.unix && a.text[0] == '@' }

// targets looks up the addresses that a may mean, in order of preference. An empty host is this machine's wildcard, at
// which nobody can be dialed: loopback stands for it. With Options.Local, addresses that other machines can reach are
// refused.
func (a address) targets(ctx context.Context, local bool) ([]string, error) {
	if a.unix {
		return []string{a.text}, nil
	}
	host, port, _ := net.SplitHostPort(a.text)
	ips := []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}
	if host != "" {
		var err error
		if ips, err = net.DefaultResolver.LookupNetIP(ctx, "ip", host); err != nil {
			return nil, fmt.Errorf("%w: check the name, or give an IP address", err)
		}
	}
	var list []string
	for _, ip := range ips {
		ip = ip.Unmap()
		if local && !ip.IsLoopback() {
			return nil, errs.Invalid("%v is reachable from other machines, but only this machine is allowed: use 127.0.0.1, [::1] or unix:/path", ip)
		}
		switch ip {
		case netip.IPv4Unspecified():
			ip = netip.AddrFrom4([4]byte{127, 0, 0, 1})
		case netip.IPv6Unspecified():
			ip = netip.IPv6Loopback()
		}
		list = append(list, net.JoinHostPort(ip.String(), port))
	}
	return list, nil
}
