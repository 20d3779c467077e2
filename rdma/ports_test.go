package rdma

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/van"
	"github.com/stepvan/stepvan/van/parts"
)

func TestPortsAreUnderstood(t *testing.T) {
	at := []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:7"), netip.MustParseAddrPort("[fe80::1]:65535")}
	var m manager
	one := m.appendPorts(nil, at[0])
	both := append(one, m.appendPorts(nil, at[1])...)
	got, err := readPorts(append(both, make([]byte, 50)...))
	require.NoError(t, err)
	require.Equal(t, at, got)
	got, err = readPorts(make([]byte, 50))
	require.NoError(t, err)
	require.Empty(t, got)
	_, err = readPorts(append(one, 1))
	require.ErrorContains(t, err, "1 bytes too many")
	_, err = readPorts(bytes.Repeat(one, maxPorts+1))
	require.ErrorContains(t, err, "more than 7 ports")
}

// cable is another cable in the machine, with a device at each end.
type cable struct {
	t       *testing.T
	number  int
	addr    [2]netip.Addr
	devices [2]string
}

// newCable makes a cable. It stays, since devices that this process has opened cannot be removed. Nobody uses it after
// the test: soft-RoCE connects no more over a port that was asked to send a message of rdma_cm while it was down.
func newCable(t *testing.T) *cable {
	t.Helper()
	c := &cable{t: t, number: 2}
	for ; c.number < 100; c.number++ {
		if _, err := os.Stat("/sys/class/net/" + c.end(0)); err != nil {
			break
		}
	}
	c.run("ip", "link", "add", c.end(0), "mtu", "9000", "address", c.hardware(0), "type", "veth",
		"peer", "name", c.end(1), "mtu", "9000", "address", c.hardware(1))
	table := fmt.Sprint(100 + c.number)
	for i := range c.addr {
		c.addr[i] = netip.AddrFrom4([4]byte{10, 77, byte(c.number), byte(i + 1)})
		c.devices[i] = fmt.Sprintf("test%d-%d", c.number, i)
		c.run("ip", "addr", "add", c.addr[i].String()+"/24", "dev", c.end(i))
		c.run("ip", "link", "set", c.end(i), "up")
		c.run("ip", "rule", "add", "pref", fmt.Sprint(1+i), "from", c.addr[i].String(), "to", c.addr[i].String(), "lookup", "local")
	}
	for i := range c.addr {
		c.run("ip", "route", "add", c.addr[1-i].String(), "dev", c.end(i), "src", c.addr[i].String(), "table", table)
	}
	c.run("ip", "rule", "add", "pref", "3", "iif", "lo", "to", c.addr[0].String()+"/24", "lookup", table)
	c.silence(false)
	for i := range c.addr {
		c.run("rdma", "link", "add", c.devices[i], "type", "rxe", "netdev", c.end(i))
	}
	return c
}

func (c *cable) end(i int) string { return fmt.Sprintf("c%d-%d", c.number, i) }

func (c *cable) hardware(i int) string { return fmt.Sprintf("02:00:00:77:%02x:%02x", c.number, i+1) }

// silence has everything that is sent get lost, at the other end of the cable.
func (c *cable) silence(on bool) {
	c.t.Helper()
	for i := range 2 {
		to := c.hardware(1 - i)
		if on {
			to = "02:00:00:77:ff:ff"
		}
		c.run("ip", "neigh", "replace", c.addr[1-i].String(), "lladdr", to, "dev", c.end(i), "nud", "permanent")
	}
}

func (c *cable) run(name string, args ...string) {
	c.t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	require.NoError(c.t, err, "%s %v: %s", name, args, out)
}

// connect connects over the cable of the machine, and over another one.
func (c *cable) connect(o Options) *duo {
	t := c.t
	t.Helper()
	m := theMachine()
	o.Paths.Ports = []netip.Addr{m.addr[0], c.addr[0]}
	d := &duo{t: t, vans: [2]*rdmaVan{newVan(t, o), newVan(t, Options{})}}
	addr, err := d.vans[1].Listen(m.addr[1].String() + ":0")
	require.NoError(t, err)
	_, err = d.vans[1].Listen(c.addr[1].String() + ":0")
	require.NoError(t, err)
	d.dial(addr)
	return d
}

func (d *duo) dial(addr string) {
	d.t.Helper()
	e, err := d.vans[0].Dial(d.t.Context(), addr)
	require.NoError(d.t, err)
	d.ends[0] = e.(*endpoint)
	d.ends[1] = d.event(1, van.EventAccepted).Endpoint.(*endpoint)
	d.ends[1].Settle()
}

// changes is a callback for PathOptions.Changed, and what it has heard.
func changes() (tell func(PathChange), heard <-chan PathChange) {
	c := make(chan PathChange, 100)
	return func(x PathChange) { c <- x }, c
}

// A connection over two ports of each side loses no message when one of them goes down, or is silent for a while. It
// comes back when the port is heard again.
func TestAPortThatFails(t *testing.T) {
	if rdma(t).iWARP() {
		return // it has one path
	}
	for name, comesBack := range map[string]bool{"goes down": false, "is silent": true} {
		t.Run(name, func(t *testing.T) {
			c := newCable(t)
			tell, heard := changes()
			d := c.connect(Options{PendingTime: time.Second, AckTimeout: 10, Paths: PathOptions{StripeBytes: 64 << 10, ReturnTime: 500 * time.Millisecond, Changed: tell}})
			d.ready(2)
			for side, end := range d.ends {
				require.Equal(t, theMachine().device[side], end.rails.all()[0].conn.device.name())
				require.Equal(t, c.devices[side], end.rails.all()[1].conn.device.name())
			}

			const size = 1 << 20
			source, inbox := registered(t, size, d.vans[0]), registered(t, size, d.vans[1])
			_, to := d.target(1, inbox)
			for round := range 10 {
				source[round] = byte(round)
				switch {
				case round == 5 && comesBack:
					c.silence(true)
				case round == 5:
					c.run("ip", "link", "set", c.end(0), "down")
				}
				sent := van.Message{Op: van.OpID(round), Head: headOf(1, size), Payload: [][]byte{source}, Target: []van.Target{to}}
				require.NoError(t, d.ends[0].Send(&sent))
				d.delivered(1).Release()
				require.True(t, bytes.Equal(source, inbox), "round %d", round)
				d.completed(0, van.OpID(round))
			}
			d.stream(0, 200, func(int) {})
			d.stream(1, 200, func(int) {})
			d.gone(1)
			lost := <-heard
			require.Equal(t, [2]int{1, 2}, [2]int{lost.Path, lost.Of})
			require.ErrorIs(t, lost.Err, stepvan.ErrPeerLost)
			if !comesBack {
				return
			}
			c.silence(false)
			d.ready(2)
			require.NoError(t, (<-heard).Err)
			d.stream(0, 200, func(int) {})
		})
	}
}

// A second port that leads nowhere does not keep the first from its work.
func TestAPathThatDoesNotConnect(t *testing.T) {
	if rdma(t).iWARP() {
		return // it has one path
	}
	c := newCable(t)
	c.silence(true)
	tell, heard := changes()
	d := c.connect(Options{PendingTime: time.Second, Paths: PathOptions{ReturnTime: 10 * time.Millisecond, Changed: tell}})
	missing := <-heard
	require.Equal(t, 1, missing.Path)
	require.ErrorContains(t, missing.Err, fmt.Sprintf("connect from %v to %v", c.addr[0], c.addr[1]))
	d.stream(0, 200, func(int) {})
	require.NoError(t, d.ends[0].Close())
	require.ErrorIs(t, d.event(1, van.EventLost).Err, parts.ErrClosedByPeer)
}

// A device that is removed costs its connections, with an error that names it. Others carry on.
func TestADeviceIsRemoved(t *testing.T) {
	if rdma(t).iWARP() {
		t.Skip("the test removes a device of soft-RoCE")
	}
	other := newDuo(t, Options{})
	c := newCable(t)
	d := &duo{t: t, vans: [2]*rdmaVan{newVan(t, Options{Source: c.addr[0]}), newVan(t, Options{})}}
	addr, err := d.vans[1].Listen(c.addr[1].String() + ":0")
	require.NoError(t, err)
	d.dial(addr)
	d.stream(0, 10, func(int) {})
	removal := exec.Command("rdma", "link", "del", c.devices[1])
	require.NoError(t, removal.Start()) // it ends with this process, which has the device open
	ev := d.event(1, van.EventLost)
	require.ErrorIs(t, ev.Err, stepvan.ErrPeerLost)
	require.ErrorContains(t, ev.Err, c.devices[1])
	d.event(1, van.EventDetached)
	d.event(0, van.EventLost)
	d.event(0, van.EventDetached)
	other.stream(0, 100, func(int) {})
}
