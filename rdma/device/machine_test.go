package device

import (
	"context"
	"os"
	"os/exec"
	"slices"
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
	all, err := interfaces()
	require.NoError(t, err)
	require.NotEmpty(t, all)
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

// command runs a program of iproute2.
func command(t *testing.T, line string) {
	t.Helper()
	words := strings.Fields(line)
	out, err := exec.CommandContext(context.Background(), words[0], words[1:]...).CombinedOutput()
	require.NoError(t, err, "%s: %s", line, out)
}

// await reads the machine until a device fits. The kernel changes the GID table on a thread of its own.
func await(t *testing.T, name, what string, fits func(*Device) bool) *Inventory {
	t.Helper()
	for range 500 {
		inv, err := ThisMachine().Read()
		require.NoError(t, err)
		for i := range inv.Devices {
			if d := &inv.Devices[i]; d.Name == name && fits(d) {
				return inv
			}
		}
	}
	t.Fatal(name + ": " + what)
	return nil
}

// A device of its own: addresses, a VLAN and the state of the port come and go.
func TestRealChanges(t *testing.T) {
	_, names := real(t)
	kind := names[0][:3]
	command(t, "ip link add x0 mtu 1500 type veth peer name x1")
	defer command(t, "ip link del x0")
	command(t, "ip link set x1 up")
	command(t, "ip link set x0 up")
	command(t, "ip addr add 10.78.0.1/24 dev x0")
	command(t, "rdma link add test0 type "+kind+" netdev x0")
	defer command(t, "rdma link del test0")
	request := Request{GIDIndex: AnyGID, Interface: "x0"}
	chosen := func(inv *Inventory, source string) {
		t.Helper()
		s, err := inv.Choose(request)
		require.NoError(t, err)
		require.Len(t, s.Choices, 1, s.Why(inv))
		require.Equal(t, "test0", s.Choices[0].Device)
		require.Equal(t, source, s.Choices[0].Source.String())
	}
	has := func(address string) func(*Device) bool {
		return func(d *Device) bool {
			return kind == "siw" || slices.ContainsFunc(d.Ports[0].GIDs, func(g GID) bool { return g.IP().String() == address && g.Type == RoCEv2 })
		}
	}

	inv := await(t, "test0", "no GID of IPv4", has("10.78.0.1"))
	chosen(inv, "10.78.0.1")
	p := inv.PortsOf("x0")[0].Port
	require.Equal(t, ethernetMTU(inv.PortsOf("x0")[0].Device.Transport, 1500), p.MTU)

	command(t, "ip addr add 2001:db8::7/64 dev x0 nodad")
	chosen(await(t, "test0", "no GID of IPv6", has("2001:db8::7")), "10.78.0.1")
	command(t, "ip addr del 10.78.0.1/24 dev x0")
	gone := has("10.78.0.1")
	chosen(await(t, "test0", "the GID of IPv4 stays", func(d *Device) bool { return kind == "siw" || !gone(d) }), "2001:db8::7")

	if kind != "siw" { // which has no VLANs
		command(t, "ip link add link x0 name x0.100 type vlan id 100")
		command(t, "ip addr add 10.78.100.1/24 dev x0.100")
		command(t, "ip link set x0.100 up")
		inv = await(t, "test0", "no GID of the VLAN", has("10.78.100.1"))
		vlan, _ := inv.Interface("x0.100")
		require.Equal(t, 100, vlan.VLAN)
		require.Equal(t, "x0", vlan.Parent)
		request.Interface = "x0.100"
		chosen(inv, "10.78.100.1")
		request.Interface = "x0"
		chosen(inv, "2001:db8::7")
	}

	command(t, "ip link set x0 down")
	inv = await(t, "test0", "the port stays active", func(d *Device) bool { return !d.Ports[0].Active })
	s, err := inv.Choose(request)
	require.NoError(t, err)
	require.Empty(t, s.Choices)
	require.Contains(t, s.Why(inv), "test0 port 1 is not used: it is not active (state DOWN, physical state Disabled): ip link set x0 up")
}
