package verbs

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
)

func TestSockaddr(t *testing.T) {
	for _, text := range []string{"10.77.0.1:7471", "[2001:db8::1]:1", "[fe80::1%1]:65535", "0.0.0.0:0"} {
		a := netip.MustParseAddrPort(text)
		s, err := newSockaddr(a)
		require.NoError(t, err)
		require.Equal(t, a, s.addrPort())
	}
	s, err := newSockaddr(netip.MustParseAddrPort("[::ffff:10.0.0.1]:5"))
	require.NoError(t, err)
	require.Equal(t, "10.0.0.1:5", s.addrPort().String())
	s, err = newSockaddr(netip.MustParseAddrPort("[fe80::1%lo]:5"))
	require.NoError(t, err)
	require.Equal(t, "[fe80::1%1]:5", s.addrPort().String())
	_, err = newSockaddr(netip.AddrPort{})
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	_, err = newSockaddr(netip.MustParseAddrPort("[fe80::1%nowhere]:5"))
	require.ErrorContains(t, err, `no network interface "nowhere"`)
	require.Equal(t, netip.AddrPort{}, new(sockaddr).addrPort())
}
