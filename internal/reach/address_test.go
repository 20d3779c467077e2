package reach

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/config"
)

func addresses(texts ...string) (all Addresses) {
	for _, text := range texts {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

// With DMLC_INTERFACE=auto a server listens at its first RDMA port, where it may use one that others reach by TCP too.
func TestAddressOfADevice(t *testing.T) {
	auto := config.Settings{Role: stepvan.RoleServer, RootURI: "10.0.0.1", Interface: "auto", Van: config.VanAuto}
	behind, near, shm := auto, auto, auto
	behind.NodeHost, near.Local, shm.Van = "192.0.2.7", true, config.VanShm
	for name, c := range map[string]struct {
		settings config.Settings
		device   string
		want     ServerAddress
	}{
		"device":                     {auto, "10.7.0.2", ServerAddress{"10.7.0.2", "10.7.0.2"}},
		"device, behind a gateway":   {behind, "10.7.0.2", ServerAddress{"10.7.0.2", "192.0.2.7"}},
		"none":                       {auto, "", ServerAddress{"10.0.0.2", "10.0.0.2"}},
		"none, behind a gateway":     {behind, "", ServerAddress{"", "192.0.2.7"}},
		"link-local":                 {auto, "fe80::7", ServerAddress{"10.0.0.2", "10.0.0.2"}},
		"not used on this machine":   {near, "10.7.0.2", ServerAddress{"10.0.0.2", "10.0.0.2"}},
		"not used beside shared mem": {shm, "10.7.0.2", ServerAddress{"10.0.0.2", "10.0.0.2"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := Host{
				Lookup:     func(_ context.Context, _, host string) ([]netip.Addr, error) { return addresses(host), nil },
				Interfaces: func() ([]Interface, error) { return nil, nil },
				Route:      func(netip.Addr) (netip.Addr, error) { return netip.MustParseAddr("10.0.0.2"), nil },
				Device: func(s *config.Settings) netip.Addr {
					require.Equal(t, c.settings, *s)
					at, _ := netip.ParseAddr(c.device)
					return at
				},
			}
			got, err := h.ServerAddress(t.Context(), &c.settings)
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}

// A server listens at the address of its interface, else at that of the route to the scheduler. It tells workers
// DMLC_NODE_HOST, which may be another one, and never an address that leads them to themselves.
func TestServerAddress(t *testing.T) {
	h := Host{
		Lookup: func(_ context.Context, _, host string) ([]netip.Addr, error) {
			if ip, err := netip.ParseAddr(host); err == nil {
				return []netip.Addr{ip}, nil
			}
			return nil, errors.New("no such host")
		},
		Interfaces: func() ([]Interface, error) {
			return []Interface{
				{Name: "lo", Up: true, Addresses: addresses("127.0.0.1", "::1")},
				{Name: "eth0", Up: true, Addresses: addresses("fe80::1", "10.0.0.2", "2001:db8::2")},
				{Name: "eth1"},
			}, nil
		},
		Route: func(to netip.Addr) (netip.Addr, error) {
			if to.Is6() {
				return netip.Addr{}, errors.New("network is unreachable")
			}
			return netip.MustParseAddr("10.0.0.2"), nil
		},
	}
	for name, c := range map[string]struct {
		root, device, host string
		want               ServerAddress
		key                string // of the setting that the error names
	}{
		"route":                             {"10.0.0.1", "", "", ServerAddress{"10.0.0.2", "10.0.0.2"}, ""},
		"no route":                          {"2001:db8::1", "", "", ServerAddress{}, rootURI},
		"auto is the route":                 {"10.0.0.1", "auto", "", ServerAddress{"10.0.0.2", "10.0.0.2"}, ""},
		"interface":                         {"10.0.0.1", "eth0", "", ServerAddress{"10.0.0.2", "10.0.0.2"}, ""},
		"interface, of the other family":    {"2001:db8::1", "eth0", "", ServerAddress{"2001:db8::2", "2001:db8::2"}, ""},
		"interface without address":         {"10.0.0.1", "eth1", "", ServerAddress{}, netDevice},
		"no interface":                      {"10.0.0.1", "eth7", "", ServerAddress{}, netDevice},
		"gateway":                           {"10.0.0.1", "", "192.0.2.7", ServerAddress{"", "192.0.2.7"}, ""},
		"gateway, at an interface":          {"10.0.0.1", "eth0", "192.0.2.7", ServerAddress{"10.0.0.2", "192.0.2.7"}, ""},
		"unknown name":                      {"10.0.0.1", "", "nobody", ServerAddress{}, nodeHost},
		"loopback beside the scheduler":     {"10.0.0.2", "", "127.0.0.1", ServerAddress{"127.0.0.1", "127.0.0.1"}, ""},
		"loopback far from the scheduler":   {"10.0.0.1", "", "127.0.0.1", ServerAddress{}, nodeHost},
		"loopback device far from it":       {"10.0.0.1", "lo", "", ServerAddress{}, netDevice},
		"scheduler whose name is not known": {"head", "", "", ServerAddress{}, rootURI},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := h.ServerAddress(t.Context(), &config.Settings{RootURI: c.root, Interface: c.device, NodeHost: c.host})
			if c.key == "" {
				require.NoError(t, err)
				require.Equal(t, c.want, got)
				return
			}
			var mistake *stepvan.ConfigError
			require.ErrorAs(t, err, &mistake)
			require.Equal(t, c.key, mistake.Key)
		})
	}
	h.Interfaces = func() ([]Interface, error) { return nil, errors.New("denied") }
	require.True(t, h.Owns(addresses("10.0.0.1")), "nothing is known against it")
}
