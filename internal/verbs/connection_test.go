//go:build cgo

package verbs

import (
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
)

func TestPrivateDataAndAddresses(t *testing.T) {
	m := rdma(t)
	l := library(t)
	a, b := newNode(t, l, m.device[0]), newNode(t, l, m.device[1])
	to := listen(b, m.addr[1])
	require.Equal(t, m.addr[1], to.Addr())
	require.NotZero(t, to.Port())
	dial(a, netip.AddrPortFrom(m.addr[0], 0), to)
	require.Equal(t, m.device[0], a.id.DeviceName())
	require.Equal(t, 1, a.id.Port())
	require.Equal(t, m.addr[0], a.id.Local().Addr())
	require.Equal(t, to, a.id.Peer())

	with := terms
	with.Private = []byte(strings.Repeat("x", 56))
	require.NoError(t, a.id.Connect(with))
	e := accept(b, strings.Repeat("y", 196))
	require.NotNil(t, e.Listener)
	require.Equal(t, to, e.Listener.Local())
	require.Equal(t, with.Private, e.Parameters.Private[:56])
	require.Equal(t, m.device[1], e.ID.DeviceName())
	require.Equal(t, m.addr[0], e.ID.Peer().Addr())
	require.Equal(t, terms.ReadsIn, e.Parameters.ReadsOut)
	require.NoError(t, e.Err())
	require.Equal(t, strings.Repeat("y", 196), string(a.event(Established).Parameters.Private[:196]))
	b.event(Established)
}

func TestPrivateDataTooLong(t *testing.T) {
	m := rdma(t)
	if m.iWARP() {
		t.Skip("iWARP takes 512 bytes")
	}
	l := library(t)
	a, b := newNode(t, l, m.device[0]), newNode(t, l, m.device[1])
	dial(a, netip.AddrPort{}, listen(b, m.addr[1]))
	with := terms
	with.Private = make([]byte, 57)
	require.ErrorContains(t, a.id.Connect(with), "connect: "+m.device[0]+": invalid argument")
	with.Private = make([]byte, 256)
	require.ErrorIs(t, a.id.Connect(with), stepvan.ErrInvalid)
}

// A connection may continue with another channel, and takes along what waits for it.
func TestMigrate(t *testing.T) {
	m := rdma(t)
	l := library(t)
	a, b := newNode(t, l, m.device[0]), newNode(t, l, m.device[1])
	connect(a, b, m)
	old := b.events
	e, err := l.NewEventChannel()
	b.events = closing(t, e, err)
	require.NoError(t, a.id.Disconnect())
	readable(t, old.FD())
	require.NoError(t, b.id.Migrate(b.events))
	require.Same(t, b.id, b.event(Disconnected).ID)
	_, ok, err := old.Next()
	require.NoError(t, err)
	require.False(t, ok)
	require.ErrorContains(t, b.events.Close(), "connection still uses it")
	require.NoError(t, b.id.Migrate(old))
}

func TestReject(t *testing.T) {
	m := rdma(t)
	l := library(t)
	a, b := newNode(t, l, m.device[0]), newNode(t, l, m.device[1])
	dial(a, netip.AddrPort{}, listen(b, m.addr[1]))
	require.NoError(t, a.id.Connect(terms))
	e := b.event(ConnectRequest)
	require.NoError(t, e.ID.Reject([]byte("wrong version")))
	require.NoError(t, e.ID.Close())
	require.Empty(t, e.ID.DeviceName())
	rejected := a.event(Rejected)
	var failure *ConnectionError
	require.ErrorAs(t, rejected.Err(), &failure)
	require.Contains(t, string(failure.Private), "wrong version")
	require.ErrorContains(t, failure, "connect: "+m.device[0]+": the peer refused the connection")
}

func TestNothingListens(t *testing.T) {
	m := rdma(t)
	a := newNode(t, library(t), m.device[0])
	dial(a, netip.AddrPort{}, netip.AddrPortFrom(m.addr[1], 9))
	err := a.id.Connect(terms)
	if m.iWARP() { // TCP is refused at once
		require.EqualError(t, err, "connect: "+m.device[0]+": connection refused")
		return
	}
	require.NoError(t, err)
	e := next(t, a.events)
	require.EqualError(t, e.Err(), "connect: "+m.device[0]+": the peer refused the connection: nothing listens at the port")
}

func TestAddressWithoutDevice(t *testing.T) {
	rdma(t)
	l := library(t)
	c, err := l.NewEventChannel()
	closing(t, c, err)
	id, err := c.NewID()
	closing(t, id, err)
	err = id.Bind(netip.MustParseAddrPort("203.0.113.7:0"))
	require.ErrorContains(t, err, "bind_addr: ")
	t.Log(err)
	err = id.Resolve(netip.AddrPort{}, netip.MustParseAddrPort("203.0.113.7:7000"), time.Second)
	if err == nil {
		e := next(t, c)
		require.Equal(t, AddressError, e.Kind)
		err = e.Err()
	}
	require.Error(t, err)
	t.Log(err)
	require.ErrorIs(t, id.Bind(netip.AddrPort{}), stepvan.ErrInvalid)
	require.ErrorIs(t, id.Bind(netip.MustParseAddrPort("[fe80::1%nowhere]:0")), stepvan.ErrInvalid)
}

func TestCloseInTheWrongOrder(t *testing.T) {
	a, _ := pair(t)
	for object, users := range map[interface{ Close() error }]string{
		a.device: "completion queue of %, protection domain of % still use it",
		a.pd:     "memory region of % (1048576 bytes at ",
		a.cq:     a.qp.Number().String() + " of % still uses it",
		a.id:     a.qp.Number().String() + " of % still uses it",
		a.events: "connection still uses it",
	} {
		err := object.Close()
		require.ErrorIs(t, err, stepvan.ErrBusy)
		require.ErrorContains(t, err, strings.ReplaceAll(users, "%", a.device.Name()))
		require.ErrorContains(t, err, "close first what uses it")
	}
	a.post(Request{ID: 1, Op: OpSend, Flags: Signaled | Inline}, a.segment(0, 8))
	a.completion() // all of it works as before
}

func TestAfterClose(t *testing.T) {
	a, b := pair(t)
	a.post(Request{ID: 1, Op: OpWrite, Flags: Signaled, Remote: b.remote(0), Key: b.mr.RemoteKey()}, a.segment(0, 8))
	a.done(1, DoneWrite)
	sends := a.sends(1)
	require.NoError(t, sends.Add(Request{Op: OpSend}, a.segment(0, 8)))
	a.detach()
	a.detach()
	_, err := a.qp.PostSend(sends)
	require.ErrorIs(t, err, stepvan.ErrClosed)
	require.ErrorIs(t, a.qp.Fail(), stepvan.ErrClosed)
	require.Equal(t, uint64(1), a.qp.Counters().Requests)
	require.ErrorIs(t, a.id.Disconnect(), stepvan.ErrClosed)
	require.NoError(t, a.cq.Close())
	_, err = a.cq.Poll(a.batch)
	require.ErrorIs(t, err, stepvan.ErrClosed)
	require.NoError(t, a.mr.Close())
	require.NoError(t, a.pd.Close())
	_, err = a.pd.Register(address(a.memory), 4096, LocalWrite)
	require.ErrorIs(t, err, stepvan.ErrClosed)
	require.ErrorContains(t, err, "reg_mr: protection domain of "+a.device.Name())
}

func TestQueuePairOfAnotherDevice(t *testing.T) {
	m := rdma(t)
	l := library(t)
	a, b := newNode(t, l, m.device[0]), newNode(t, l, m.device[1])
	to := listen(b, m.addr[1])
	id, err := a.events.NewID()
	closing(t, id, err)
	require.NoError(t, id.Resolve(netip.AddrPort{}, to, patience))
	a.event(AddressResolved)
	_, err = id.NewQP(b.pd, b.options)
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	require.ErrorContains(t, err, "the protection domain is of "+m.device[1]+" (want one of "+m.device[0]+")")
	o := a.options
	o.SendCQ = b.cq
	_, err = id.NewQP(a.pd, o)
	require.ErrorContains(t, err, "the completion queue is of "+m.device[1]+" (want one of "+m.device[0]+")")
	_, err = id.NewQP(a.pd, QPOptions{})
	require.ErrorIs(t, err, stepvan.ErrInvalid)
}

// A process whose peer is killed hears of it.
func TestKilledProcess(t *testing.T) {
	m := rdma(t)
	if to := os.Getenv("VERBS_TEST_DIAL"); to != "" {
		a := newNode(t, library(t), m.device[0])
		dial(a, netip.AddrPortFrom(m.addr[0], 0), netip.MustParseAddrPort(to))
		require.NoError(t, a.id.Connect(terms))
		a.event(Established)
		a.post(Request{ID: 1, Op: OpSend, Flags: Signaled | Inline}, a.segment(0, 8))
		select {} // until it is killed
	}
	b := newNode(t, library(t), m.device[1])
	to := listen(b, m.addr[1])
	child := exec.Command(os.Args[0], "-test.run=^TestKilledProcess$")
	child.Env = append(os.Environ(), "VERBS_TEST_DIAL="+to.String())
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	require.NoError(t, child.Start())
	e := b.event(ConnectRequest)
	b.attach(e.ID)
	b.receive(1, b.segment(0, 8))
	b.receive(2, b.segment(0, 8))
	require.NoError(t, e.ID.Accept(terms))
	b.event(Established)
	b.done(1, DoneReceive)
	require.NoError(t, child.Process.Kill())
	killed := time.Now()
	b.event(Disconnected)
	require.NoError(t, b.id.Disconnect())
	c := b.completion()
	require.Equal(t, StatusFlushed, c.Status)
	t.Logf("noticed after %v", time.Since(killed).Round(time.Millisecond))
	child.Wait()
}

// Connections that come and go leave nothing behind.
func TestManyConnections(t *testing.T) {
	m := rdma(t)
	l := library(t)
	var before int
	for i := range 30 {
		t.Run("", func(t *testing.T) {
			a, b := newNode(t, l, m.device[0]), newNode(t, l, m.device[1])
			connect(a, b, m)
			a.post(Request{ID: 1, Op: OpWrite, Flags: Signaled, Remote: b.remote(0), Key: b.mr.RemoteKey()}, a.segment(0, 8))
			a.done(1, DoneWrite)
		})
		files, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		if i == 1 {
			before = len(files)
		}
		if i > 1 {
			require.Equal(t, before, len(files))
		}
	}
	require.Empty(t, l.Live())
}

// Queue pairs can be connected without rdma_cm, from what each side tells the other.
func TestPlainQueuePairs(t *testing.T) {
	m := rdma(t)
	if m.iWARP() {
		t.Skip("iWARP connects by rdma_cm alone")
	}
	l := library(t)
	a, b := newNode(t, l, m.device[0]), newNode(t, l, m.device[1])
	for _, n := range []*node{a, b} {
		qp, err := n.pd.NewQP(n.options)
		n.qp = closing(t, qp, err)
		require.NoError(t, n.qp.Init(1, LocalWrite|RemoteWrite|RemoteRead))
	}
	b.receive(1, b.segment(0, 8))
	for _, side := range [][2]*node{{a, b}, {b, a}} {
		index, _ := gidOf(t, side[0].device, GIDRoCEv2)
		_, gid := gidOf(t, side[1].device, GIDRoCEv2)
		path := Path{
			Port: 1, GIDIndex: index, RemoteGID: gid, MTU: 4096, HopLimit: 64, Remote: side[1].qp.Number(),
			FirstSent: 77, FirstReceived: 77, ReadsIn: 1, ReadsOut: 1, AckTimeout: 14, Retries: 7, NotReadyTimer: 12,
		}
		require.NoError(t, side[0].qp.ReadyToReceive(path))
		require.NoError(t, side[0].qp.ReadyToSend(path))
	}
	copy(a.memory, "plainly")
	a.post(Request{ID: 2, Op: OpSend, Flags: Signaled}, a.segment(0, 7))
	b.done(1, DoneReceive)
	a.done(2, DoneSend)
	require.Equal(t, "plainly", string(b.memory[:7]))
	require.ErrorIs(t, a.qp.UseLAGPort(1), stepvan.ErrNotSupported)
}

// gidOf finds the entry with an IPv4 address.
func gidOf(t *testing.T, d *Device, kind GIDType) (index int, gid netip.Addr) {
	t.Helper()
	port, err := d.Port(1)
	require.NoError(t, err)
	for i := range port.GIDs {
		e, used, err := d.GID(1, i)
		require.NoError(t, err)
		if used && e.Type == kind && e.GID.Is4In6() {
			return i, e.GID
		}
	}
	t.Fatal("no entry")
	return 0, netip.Addr{}
}
