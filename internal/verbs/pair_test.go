//go:build cgo

package verbs

import (
	"fmt"
	"net/netip"
	"os"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// patience is how long a test waits for what must happen. The machine may be an emulated one.
const patience = 20 * time.Second

// machine is the two devices that scripts/rdma-vm offers.
type machine struct {
	device [2]string
	addr   [2]netip.Addr
}

// rdma returns the devices, or skips the test.
func rdma(t testing.TB) machine {
	t.Helper()
	if os.Getenv("RDMAVM_DEV1") == "" {
		if os.Getenv("STEPVAN_TEST_REQUIRE_RDMA") != "" {
			t.Fatal("STEPVAN_TEST_REQUIRE_RDMA is set, and there are no devices: run the test with scripts/test-rdma.sh")
		}
		t.Skip("no RDMA device: make test-rdma runs this test in a machine with some")
	}
	return machine{
		device: [2]string{os.Getenv("RDMAVM_DEV0"), os.Getenv("RDMAVM_DEV1")},
		addr:   [2]netip.Addr{netip.MustParseAddr(os.Getenv("RDMAVM_IP0")), netip.MustParseAddr(os.Getenv("RDMAVM_IP1"))},
	}
}

// iWARP reports whether the devices are soft-iWARP, which has no immediates and no windows.
func (m machine) iWARP() bool { return m.device[0] == "siw0" }

// library loads the libraries, and fails a test that leaves objects behind.
func library(t testing.TB) *Library {
	t.Helper()
	l, err := Load(Options{Trace: true})
	require.NoError(t, err)
	t.Cleanup(func() {
		for _, o := range l.Live() {
			t.Errorf("still open: %s, made at\n%s", o.Name, o.Stack)
		}
	})
	return l
}

// closing closes the object at the end of the test.
func closing[T interface{ Close() error }](t testing.TB, object T, err error) T {
	t.Helper()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, object.Close()) })
	return object
}

// node is what a side of a connection is made of.
type node struct {
	t       testing.TB
	library *Library
	events  *EventChannel
	device  *Device
	pd      *PD
	cq      *CQ
	options QPOptions
	batch   *Completions
	mr      *MR
	memory  []byte
	id      *ID
	qp      *QP
}

const memoryBytes = 1 << 20

// newNode makes all but the connection.
func newNode(t testing.TB, l *Library, device string) *node {
	t.Helper()
	n := &node{t: t, library: l}
	e, err := l.NewEventChannel()
	n.events = closing(t, e, err)
	d, err := l.Open(device)
	n.device = closing(t, d, err)
	pd, err := n.device.NewPD()
	n.pd = closing(t, pd, err)
	cq, err := n.device.NewCQ(256, nil, 0)
	n.cq = closing(t, cq, err)
	b, err := l.NewCompletions(16)
	n.batch = closing(t, b, err)
	n.memory = mapped(t, memoryBytes, 0)
	n.mr = n.register(n.memory, LocalWrite|RemoteWrite|RemoteRead)
	n.options = QPOptions{SendCQ: n.cq, ReceiveCQ: n.cq, SendRequests: 32, ReceiveRequests: 32, SendSegments: 4, ReceiveSegments: 2, Inline: 64}
	return n
}

func (n *node) register(memory []byte, access Access) *MR {
	n.t.Helper()
	mr, err := n.pd.Register(address(memory), uint64(len(memory)), access)
	return closing(n.t, mr, err)
}

// mapped is memory outside of the heap of Go.
func mapped(t testing.TB, size, flags int) []byte {
	t.Helper()
	memory, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|flags)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(memory)) })
	return memory
}

func address(memory []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(memory))) }

// segment is a part of the registered memory.
func (n *node) segment(offset, length int) Segment {
	return Segment{Addr: address(n.memory) + uintptr(offset), Length: uint32(length), Key: n.mr.LocalKey()}
}

// remote is where that memory is for the peer.
func (n *node) remote(offset int) uint64 { return uint64(address(n.memory)) + uint64(offset) }

// attach gives the node a connection with a queue pair.
func (n *node) attach(id *ID) {
	n.t.Helper()
	n.id = id
	qp, err := id.NewQP(n.pd, n.options)
	require.NoError(n.t, err)
	n.qp = qp
	n.t.Cleanup(n.detach)
}

// detach closes queue pair and connection, if the test has not.
func (n *node) detach() {
	require.NoError(n.t, n.qp.Close())
	require.NoError(n.t, n.id.Close())
}

// event waits for an event of a connection, which must be of that kind.
func (n *node) event(kind ConnectionEventKind) ConnectionEvent {
	n.t.Helper()
	e := next(n.t, n.events)
	require.Equal(n.t, kind.String(), e.Kind.String(), "status %d", e.Status)
	return e
}

func next(t testing.TB, c *EventChannel) ConnectionEvent {
	t.Helper()
	for {
		e, ok, err := c.Next()
		require.NoError(t, err)
		if ok {
			return e
		}
		readable(t, c.FD())
	}
}

// readable waits until a descriptor is.
func readable(t testing.TB, fd int) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(time.Until(deadline).Milliseconds()))
		if err == unix.EINTR && time.Now().Before(deadline) {
			continue
		}
		require.NoError(t, err)
		require.NotZero(t, n, "nothing came within %v", patience)
		return
	}
}

// completion polls for the next completion.
func (n *node) completion() Completion {
	n.t.Helper()
	for deadline := time.Now().Add(patience); ; {
		got, err := n.cq.Poll(n.one())
		require.NoError(n.t, err)
		if got == 1 {
			return n.one().At(0)
		}
		require.True(n.t, time.Now().Before(deadline), "no completion within %v", patience)
		unix.Poll(nil, 0)
	}
}

// one is room for one completion.
func (n *node) one() *Completions {
	n.batch.room = 1
	return n.batch
}

// done waits for a completion with success.
func (n *node) done(id uint64, op CompletionOp) Completion {
	n.t.Helper()
	c := n.completion()
	require.NoError(n.t, c.Err("post", n.device.Name()))
	require.Equal(n.t, id, c.ID)
	require.Equal(n.t, op, c.Op)
	require.Equal(n.t, n.qp.Number(), c.QP)
	return c
}

// wrote waits for the completion of a write, and until the peer has the bytes. Over iWARP a completion says only that
// they were sent, so that a message must follow.
func (n *node) wrote(id uint64, to *node) {
	n.t.Helper()
	n.done(id, DoneWrite)
	if rdma(n.t).iWARP() {
		to.receive(1, to.segment(memoryBytes-8, 8))
		n.post(Request{ID: 1, Op: OpSend, Flags: Signaled}, n.segment(0, 1))
		to.done(1, DoneReceive)
		n.done(1, DoneSend)
	}
}

// post posts one request.
func (n *node) post(r Request, segments ...Segment) {
	n.t.Helper()
	c := n.sends(1)
	require.NoError(n.t, c.Add(r, segments...))
	posted, err := n.qp.PostSend(c)
	require.NoError(n.t, err)
	require.Equal(n.t, 1, posted)
}

// sends is a chain that the test closes at its end.
func (n *node) sends(requests int) *SendChain {
	n.t.Helper()
	c, err := n.library.NewSendChain(requests, 4*requests)
	return closing(n.t, c, err)
}

// receive posts a receive.
func (n *node) receive(id uint64, segments ...Segment) {
	n.t.Helper()
	c, err := n.library.NewReceiveChain(1, 2)
	closing(n.t, c, err)
	require.NoError(n.t, c.Add(id, segments...))
	_, err = n.qp.PostReceive(c)
	require.NoError(n.t, err)
}

// pair is two nodes on two devices, connected. The first one has dialled.
func pair(t testing.TB) (a, b *node) {
	t.Helper()
	m := rdma(t)
	l := library(t)
	a, b = newNode(t, l, m.device[0]), newNode(t, l, m.device[1])
	connect(a, b, m)
	return a, b
}

// terms of the connections of the tests. With 7 retries soft-RoCE would try for ever.
var terms = ConnectionParameters{ReadsIn: 4, ReadsOut: 4, Retries: 6, NotReadyRetries: 0}

func connect(a, b *node, m machine) {
	a.t.Helper()
	to := listen(b, m.addr[1])
	dial(a, netip.AddrPortFrom(m.addr[0], 0), to)
	with := terms
	with.Private = []byte("from a")
	require.NoError(a.t, a.id.Connect(with))
	accept(b, "from b")
	e := a.event(Established)
	require.Equal(a.t, "from b", string(e.Parameters.Private[:6]))
	b.event(Established)
}

// listen makes a listener, and returns where it listens.
func listen(n *node, addr netip.Addr) netip.AddrPort {
	n.t.Helper()
	return listenAt(n, netip.AddrPortFrom(addr, 0))
}

func listenAt(n *node, addr netip.AddrPort) netip.AddrPort {
	n.t.Helper()
	id, err := n.events.NewID()
	closing(n.t, id, err)
	require.NoError(n.t, id.SetReuseAddress())
	require.NoError(n.t, id.Bind(addr))
	require.NoError(n.t, id.Listen(8))
	return id.Local()
}

// dial goes as far as Connect.
func dial(n *node, from, to netip.AddrPort) {
	n.t.Helper()
	id, err := n.events.NewID()
	require.NoError(n.t, err)
	require.NoError(n.t, id.SetTypeOfService(96))
	require.NoError(n.t, id.SetAckTimeout(14)) // 67 ms
	require.NoError(n.t, id.Resolve(from, to, patience))
	n.event(AddressResolved)
	require.NoError(n.t, id.ResolveRoute(patience))
	n.event(RouteResolved)
	n.attach(id)
}

// accept takes the request that comes.
func accept(n *node, private string) ConnectionEvent {
	n.t.Helper()
	e := n.event(ConnectRequest)
	n.attach(e.ID)
	with := terms
	with.Private = []byte(private)
	require.NoError(n.t, e.ID.Accept(with))
	return e
}

func ExampleStatus() {
	fmt.Println(StatusRetryExceeded)
	// Output: the peer did not answer: it is dead, or the path to it is down
}
