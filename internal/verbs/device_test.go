//go:build cgo

package verbs

import (
	"net"
	"os/exec"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan"
)

func TestDevices(t *testing.T) {
	m := rdma(t)
	l := library(t)
	all, err := l.Devices()
	require.NoError(t, err)
	at := slices.IndexFunc(all, func(d DeviceInfo) bool { return d.Name == m.device[0] })
	require.GreaterOrEqual(t, at, 0)
	info := all[at]
	require.Equal(t, m.iWARP(), info.Transport == IWARP)
	require.Contains(t, info.Path, info.Name)
	require.Contains(t, info.Uverbs, "uverbs")
	require.NotZero(t, info.GUID)

	_, err = l.Open("mlx9_9")
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	require.ErrorContains(t, err, "open: mlx9_9: no such device (have "+m.device[0])
}

func TestAttributes(t *testing.T) {
	m := rdma(t)
	l := library(t)
	d, err := l.Open(m.device[0])
	closing(t, d, err)
	a, err := d.Query()
	require.NoError(t, err)
	require.Equal(t, 1, a.Ports)
	require.Positive(t, a.QPs)
	require.Positive(t, a.QPRequests)
	require.Positive(t, a.CQEntries)
	require.Positive(t, a.CompletionVectors)
	p, err := d.Port(1)
	require.NoError(t, err)
	require.Equal(t, PortActive, p.State)
	require.Equal(t, 4096, p.MTU)
	require.Equal(t, LinkEthernet, p.LinkLayer)
	_, err = d.Port(7)
	require.ErrorContains(t, err, "query_port: "+m.device[0]+": invalid argument")
	if m.iWARP() {
		return
	}
	_, gid := gidOf(t, d, GIDRoCEv2)
	require.Equal(t, m.addr[0], gid.Unmap())
	e, used, err := d.GID(1, 0)
	require.NoError(t, err)
	require.True(t, used)
	h0, err := net.InterfaceByName("h0")
	require.NoError(t, err)
	require.Equal(t, h0.Index, e.Interface)
	_, used, err = d.GID(1, p.GIDs-1)
	require.NoError(t, err)
	require.False(t, used)
}

func TestWhatCannotBeRegistered(t *testing.T) {
	m := rdma(t)
	n := newNode(t, library(t), m.device[0])
	readOnly, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	require.NoError(t, err)
	defer unix.Munmap(readOnly)
	for name, c := range map[string]struct {
		addr   uintptr
		length uint64
		want   string
	}{
		"unmapped":  {0x1000, 4096, "bad address: the range must be mapped"},
		"read-only": {address(readOnly), 4096, "bad address: the range must be mapped"},
		"wrapped":   {^uintptr(0) - 100, 4096, ""},
	} {
		_, err := n.pd.Register(c.addr, c.length, LocalWrite|RemoteWrite)
		require.ErrorContains(t, err, "reg_mr: "+m.device[0]+": "+c.want, name)
		t.Log(name, err)
	}
	mr, err := n.pd.Register(address(readOnly), 4096, RemoteRead) // a source need not be writable
	if err != nil {
		t.Log("read-only memory as a source:", err)
	} else {
		require.NoError(t, mr.Close())
	}
	_, err = n.pd.RegisterDMABuf(0, 0, 4096, 0x1000, LocalWrite)
	require.Error(t, err)
	t.Log(err)
}

// A fork must not move registered memory away from the device.
func TestFork(t *testing.T) {
	a, b := pair(t)
	require.Equal(t, ForkCopies, a.library.Fork(), "the kernels of the test machines copy")
	fill(a.memory[:4096], 1)
	require.NoError(t, exec.Command("true").Run())
	fill(a.memory[:4096], 2) // would go to a copy of the page
	a.post(Request{ID: 1, Op: OpWrite, Flags: Signaled, Remote: b.remote(0), Key: b.mr.RemoteKey()}, a.segment(0, 4096))
	a.wrote(1, b)
	require.Equal(t, a.memory[:4096], b.memory[:4096])
}

func TestRelaxedOrdering(t *testing.T) {
	m := rdma(t)
	n := newNode(t, library(t), m.device[0])
	mr, err := n.pd.Register(address(n.memory), memoryBytes, LocalWrite|RemoteWrite|RelaxedOrdering)
	require.NoError(t, err)
	require.Equal(t, address(n.memory), mr.Addr())
	require.Equal(t, uint64(memoryBytes), mr.Length())
	require.NoError(t, mr.Close())
	require.NoError(t, mr.Close())
}

func TestTooLargeQueues(t *testing.T) {
	m := rdma(t)
	n := newNode(t, library(t), m.device[0])
	_, err := n.device.NewCQ(1<<30, nil, 0)
	require.ErrorContains(t, err, "create_cq: "+m.device[0])
	o := n.options
	o.SendRequests = 1 << 30
	_, err = n.pd.NewQP(o)
	require.ErrorContains(t, err, "create_qp: "+m.device[0])
}
