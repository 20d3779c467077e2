//go:build cgo

package verbs

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
)

// Numbers of requests for testdata/fake.c: how they fail to post.
const (
	fails         = 1000
	failsNegative = 2000
	failsSilently = 3000
)

// fake runs the test once more, in a process of its own with the libraries of testdata/fake.c. It is true there.
func fake(t testing.TB, flags ...string) bool {
	t.Helper()
	if os.Getenv("VERBS_TEST_FAKE") == t.Name() {
		return true
	}
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	ibverbs, rdmacm := filepath.Join(dir, "libibverbs.so.1"), filepath.Join(dir, "librdmacm.so.1")
	for _, library := range [][]string{
		{"-Wl,-soname,libibverbs.so.1", "-o", ibverbs, "testdata/fake.c"},
		{"-DCM", "-o", rdmacm, "testdata/fake.c", ibverbs},
	} {
		args := append([]string{"-std=gnu11", "-Wall", "-Werror", "-shared", "-fPIC"}, append(flags, library...)...)
		out, err := exec.Command("cc", args...).CombinedOutput()
		require.NoError(t, err, string(out))
	}
	child := exec.Command(os.Args[0], "-test.v", "-test.run=^"+t.Name()+"$", "-test.bench=^"+t.Name()+"$", "-test.benchmem")
	child.Env = append(os.Environ(), "VERBS_TEST_FAKE="+t.Name(), "LD_LIBRARY_PATH="+dir)
	if _, ok := t.(*testing.B); ok {
		child.Stdout, child.Stderr = os.Stdout, os.Stderr
		require.NoError(t, child.Run())
		t.Skip("measured in a process of its own")
	}
	out, err := child.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), t.Name())
	return false
}

// fakeNode is a queue pair of the fake device.
func fakeNode(t testing.TB) *node {
	l := library(t)
	d, err := l.Open("fake0")
	closing(t, d, err)
	pd, err := d.NewPD()
	closing(t, pd, err)
	cq, err := d.NewCQ(16, nil, 0)
	closing(t, cq, err)
	qp, err := pd.NewQP(QPOptions{SendCQ: cq, ReceiveCQ: cq, SendRequests: 5})
	require.NoError(t, err)
	b, err := l.NewCompletions(4)
	closing(t, b, err)
	return &node{t: t, library: l, device: d, pd: pd, cq: cq, qp: qp, batch: b}
}

func TestPostingFails(t *testing.T) {
	if !fake(t) {
		return
	}
	n := fakeNode(t)
	require.Equal(t, 5, n.qp.Caps().SendRequests, "what was asked for, where the device does not tell")
	post := func(ids ...uint64) (int, error) {
		c := n.sends(len(ids))
		for _, id := range ids {
			op, flags := OpSend, Signaled
			if id == 3 {
				op, flags = OpRead, 0
			}
			require.NoError(t, c.Add(Request{ID: id, Op: op, Flags: flags}, Segment{Length: 10}, Segment{Length: 1}))
		}
		return n.qp.PostSend(c)
	}
	for _, c := range []struct {
		ids    []uint64
		posted int
		errno  syscall.Errno
	}{
		{[]uint64{1, 2, 3}, 3, 0},
		{[]uint64{1, 3, fails + uint64(syscall.ENOMEM), 4}, 2, syscall.ENOMEM},
		{[]uint64{failsNegative + uint64(syscall.EINVAL), 4}, 0, syscall.EINVAL},
		{[]uint64{1, failsSilently + 524}, 0, 524},
	} {
		before := n.qp.Counters()
		posted, err := post(c.ids...)
		require.Equal(t, c.posted, posted)
		if c.errno == 0 {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, c.errno)
		}
		want := before
		for _, id := range c.ids[:c.posted] {
			want.Requests++
			want.Bytes += 11
			if id == 3 {
				want.Reads++
			} else {
				want.Signaled++
			}
		}
		if c.posted > 0 {
			want.Doorbells++
		}
		require.Equal(t, want, n.qp.Counters(), c.ids)
	}

	r, err := n.library.NewReceiveChain(3, 3)
	closing(t, r, err)
	for _, id := range []uint64{1, 2, fails + uint64(syscall.ENOMEM)} {
		require.NoError(t, r.Add(id, Segment{Length: 10}))
	}
	posted, err := n.qp.PostReceive(r)
	require.Equal(t, 2, posted)
	require.ErrorContains(t, err, "post_recv: fake0: cannot allocate memory: the receive queue is full")
	require.Equal(t, uint64(2), n.qp.Counters().Receives)

	require.ErrorContains(t, n.qp.Close(), "destroy_qp: fake0: device or resource busy")
	_, err = post(1)
	require.NoError(t, err, "it is as before")
	require.NoError(t, n.qp.Close())
}

// What an old library lacks is not supported, or done in the old way.
func TestOldLibrary(t *testing.T) {
	if !fake(t, "-DOLD") {
		return
	}
	n := fakeNode(t)
	require.Equal(t, ForkMarked, n.library.Fork())
	require.Error(t, n.qp.Close())
	require.NoError(t, n.qp.Close())
	_, _, err := n.device.GID(1, 0)
	require.ErrorIs(t, err, stepvan.ErrNotSupported)
	_, err = n.pd.RegisterDMABuf(0, 0, 4096, 0, LocalWrite)
	require.ErrorIs(t, err, stepvan.ErrNotSupported)
	mr, err := n.pd.Register(4096, 4096, LocalWrite|RelaxedOrdering)
	closing(t, mr, err)
	_, err = n.pd.Register(4096, 0, LocalWrite)
	require.ErrorIs(t, err, stepvan.ErrNoMemory)
	_, err = n.pd.NewMW()
	require.ErrorIs(t, err, stepvan.ErrNotSupported)
}

func TestCallsFail(t *testing.T) {
	if !fake(t) {
		return
	}
	n := fakeNode(t)
	require.Equal(t, ForkCopies, n.library.Fork())
	require.Error(t, n.qp.Close())
	require.NoError(t, n.qp.Close())
	devices, err := n.library.Devices()
	require.NoError(t, err)
	require.Equal(t, []DeviceInfo{{Name: "fake0", Uverbs: "uverbs0", Path: "/sys/class/infiniband/fake0", GUID: 0x0102030405060708}}, devices)
	other, err := n.library.Open("fake0")
	require.NoError(t, err)
	require.NoError(t, other.Close())
	_, err = other.Query()
	require.ErrorIs(t, err, stepvan.ErrClosed)
	require.ErrorContains(t, err, "query_device: device fake0: ")
	_, err = n.device.Query()
	require.EqualError(t, err, "query_device: fake0: the driver, the kernel or the library does not support it")
	_, err = n.device.Port(1)
	require.EqualError(t, err, "query_port: fake0: no such device")
	_, ok, err := n.device.Event()
	require.NoError(t, err)
	require.False(t, ok)
	_, err = n.device.NewCompletionChannel()
	require.EqualError(t, err, "create_comp_channel: fake0: too many open files")
	_, err = n.library.NewEventChannel()
	require.EqualError(t, err, "create_event_channel: no such device: rdma_cm needs the kernel module rdma_ucm and a device")
	require.EqualError(t, n.cq.Arm(true), "req_notify_cq: fake0: invalid argument")
	mr, err := n.pd.Register(4096, 4096, LocalWrite|RelaxedOrdering)
	closing(t, mr, err)
	require.Equal(t, LocalKey(1), mr.LocalKey())
	require.Equal(t, RemoteKey(2), mr.RemoteKey())
}
