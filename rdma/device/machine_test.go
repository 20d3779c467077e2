package device

import (
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// real reads the machine of scripts/rdma-vm, and skips elsewhere.
func real(t *testing.T) (inv *Inventory, names [2]string) {
	names = [2]string{os.Getenv("RDMAVM_DEV0"), os.Getenv("RDMAVM_DEV1")}
	if names[1] == "" {
		if os.Getenv("STEPVAN_TEST_REQUIRE_RDMA") != "" {
			t.Fatal("the devices of scripts/rdma-vm are required, and RDMAVM_DEV1 is not set")
		}
		t.Skip("needs the devices of scripts/rdma-vm: make test-rdma")
	}
	inv, err := ThisMachine().Read()
	require.NoError(t, err)
	return inv, names
}

// Any machine can be read, also one without devices.
func TestThisMachine(t *testing.T) {
	inv, err := ThisMachine().Read()
	require.NoError(t, err)
	require.NotEmpty(t, inv.Interfaces)
	s, err := inv.Choose(Request{GIDIndex: AnyGID})
	require.NoError(t, err)
	require.Equal(t, len(s.Choices) == 0, s.Why(inv) != "")
	_, err = mapped("no-such-interface")
	require.Error(t, err)
}

func TestRealDevices(t *testing.T) {
	inv, names := real(t)
	require.Len(t, inv.Devices, 2)
	require.Empty(t, inv.WhyNone())
	for i, d := range inv.Devices {
		require.Equal(t, names[i], d.Name)
		require.Empty(t, d.Problems)
		require.True(t, d.Software)
		require.Contains(t, []string{"rdma_rxe", "siw"}, d.Driver)
		require.True(t, strings.HasPrefix(d.Uverbs, "uverbs"), d.Uverbs)
		require.Len(t, d.Ports, 1)
		p := d.Ports[0]
		require.True(t, p.Active)
		require.Equal(t, LinkEthernet, p.LinkLayer)
		require.Equal(t, 4096, p.MTU)
		require.Equal(t, []string{"h" + names[i][len(names[i])-1:]}, p.Interfaces)
	}
}

func TestRealChoices(t *testing.T) {
	inv, names := real(t)
	s, err := inv.Choose(Request{GIDIndex: AnyGID, Interface: Auto})
	require.NoError(t, err)
	require.Empty(t, s.Skipped)
	require.Len(t, s.Choices, 2)
	for i, c := range s.Choices {
		require.Equal(t, names[i], c.Device)
		require.Equal(t, os.Getenv("RDMAVM_IP"+names[i][len(names[i])-1:]), c.Source.String())
		require.Contains(t, inv.PortsOf(c.Interface), PortRef{&inv.Devices[i], &inv.Devices[i].Ports[0]})
	}
	s, err = inv.Choose(Request{GIDIndex: AnyGID, Interface: "h1"})
	require.NoError(t, err)
	require.Len(t, s.Choices, 1)
	require.Equal(t, names[1], s.Choices[0].Device)
	_, err = inv.Choose(Request{GIDIndex: AnyGID, Interface: "lo"})
	require.ErrorContains(t, err, "set one of h0, h1, or auto")
}

// rdmamap and the GID table agree on soft-RoCE. Of soft-iWARP rdmamap knows nothing.
func TestRealRdmamap(t *testing.T) {
	_, names := real(t)
	d, err := mapped("h0")
	if strings.HasPrefix(names[0], "siw") {
		require.Error(t, err)
		return
	}
	require.NoError(t, err)
	require.Equal(t, names[0], d)
}

// VLANs, addresses and states come and go while the kernel keeps the table.
func TestRealChanges(t *testing.T) {
	inv, names := real(t)
	ip := func(line string) {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), "ip", strings.Fields(line)...).CombinedOutput()
		require.NoError(t, err, "ip %s: %s", line, out)
	}
	again := func() *Inventory {
		inv, err := ThisMachine().Read()
		require.NoError(t, err)
		return inv
	}
	wait := func(what string, fits func(*Inventory) bool) *Inventory {
		t.Helper()
		for range 500 { // the kernel changes the table on a thread of its own
			if inv = again(); fits(inv) {
				return inv
			}
			ip("link show h0")
		}
		t.Fatal(what)
		return nil
	}
	ip("addr add 2001:db8::7/64 dev h0 nodad")
	defer ip("addr del 2001:db8::7/64 dev h0")
	global := netip.MustParseAddr("2001:db8::7")
	f, ok := again().Interface("h0")
	require.True(t, ok)
	require.True(t, f.has(global))
	if strings.HasPrefix(names[0], "siw") {
		return
	}
	inv = wait("the address has no GID", func(inv *Inventory) bool {
		for _, g := range inv.Devices[0].Ports[0].GIDs {
			if g.IP() == global {
				return g.Type == RoCEv2 && g.Interface == "h0"
			}
		}
		return false
	})
	s, err := inv.Choose(Request{GIDIndex: AnyGID, Interface: "h0"})
	require.NoError(t, err)
	require.Equal(t, os.Getenv("RDMAVM_IP0"), s.Choices[0].Source.String(), "IPv4 is still better")
}
