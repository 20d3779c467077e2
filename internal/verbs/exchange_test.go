//go:build cgo

package verbs

import (
	"bytes"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/race"
)

func fill(b []byte, seed byte) {
	for i := range b {
		b[i] = byte(i)*7 + byte(i>>8) + seed
	}
}

func TestWrite(t *testing.T) {
	a, b := pair(t)
	const n = 300_000 // several packets
	fill(a.memory[:n], 1)
	a.post(Request{ID: 7, Op: OpWrite, Flags: Signaled, Remote: b.remote(4096), Key: b.mr.RemoteKey()}, a.segment(0, n))
	a.wrote(7, b)
	require.True(t, bytes.Equal(a.memory[:n], b.memory[4096:4096+n]))
	require.Zero(t, b.memory[4096+n])
}

func TestWriteGathers(t *testing.T) {
	a, b := pair(t)
	copy(a.memory[100:], "hello, ")
	copy(a.memory[9000:], "world")
	a.post(Request{ID: 1, Op: OpWrite, Flags: Signaled, Remote: b.remote(0), Key: b.mr.RemoteKey()}, a.segment(100, 7), a.segment(9000, 5))
	a.wrote(1, b)
	require.Equal(t, "hello, world", string(b.memory[:12]))
}

func TestRead(t *testing.T) {
	a, b := pair(t)
	const n = 100_000
	fill(b.memory[:n], 3)
	a.post(Request{ID: 9, Op: OpRead, Flags: Signaled, Remote: b.remote(0), Key: b.mr.RemoteKey()}, a.segment(8192, n))
	a.done(9, DoneRead)
	require.True(t, bytes.Equal(b.memory[:n], a.memory[8192:8192+n]))
	require.Equal(t, uint64(1), a.qp.Counters().Reads)
}

func TestSend(t *testing.T) {
	a, b := pair(t)
	b.receive(5, b.segment(0, 64))
	copy(a.memory, "a message")
	a.post(Request{ID: 6, Op: OpSend, Flags: Signaled}, a.segment(0, 9))
	got := b.done(5, DoneReceive)
	a.done(6, DoneSend)
	require.Equal(t, uint32(9), got.Bytes)
	require.False(t, got.HasImmediate)
	require.Equal(t, "a message", string(b.memory[:9]))
}

func TestImmediate(t *testing.T) {
	a, b := pair(t)
	if rdma(t).iWARP() {
		c := a.sends(1)
		require.NoError(t, c.Add(Request{Op: OpWriteImmediate, Remote: b.remote(0), Key: b.mr.RemoteKey()}, a.segment(0, 8)))
		_, err := a.qp.PostSend(c)
		require.ErrorIs(t, err, syscall.EINVAL)
		return
	}
	b.receive(1)
	b.receive(2, b.segment(0, 64))
	copy(a.memory, "written")
	a.post(Request{Op: OpWriteImmediate, Immediate: 0x01020304, Remote: b.remote(500), Key: b.mr.RemoteKey()}, a.segment(0, 7))
	got := b.done(1, DoneReceiveImmediate)
	require.True(t, got.HasImmediate)
	require.Equal(t, uint32(0x01020304), got.Immediate)
	require.Equal(t, uint32(7), got.Bytes)
	require.Equal(t, "written", string(b.memory[500:507]))

	a.post(Request{Op: OpSendImmediate, Immediate: 0xfffefdfc, Flags: Signaled}, a.segment(0, 7))
	got = b.done(2, DoneReceive)
	require.Equal(t, uint32(0xfffefdfc), got.Immediate)
	a.done(0, DoneSend)
}

// Inline data is copied when it is posted: it may change at once, and needs no registration.
func TestInline(t *testing.T) {
	m := rdma(t)
	most := 512
	if m.iWARP() {
		most = 80
	}
	l := library(t)
	a, b := newNode(t, l, m.device[0]), newNode(t, l, m.device[1])
	a.options.Inline = most
	connect(a, b, m)
	require.GreaterOrEqual(t, a.qp.Caps().Inline, most)
	b.receive(1, b.segment(0, most))
	foreign := mapped(t, 4096, 0)
	fill(foreign[:most], 1)
	want := bytes.Clone(foreign[:most])
	a.post(Request{ID: 3, Op: OpSend, Flags: Signaled | Inline}, Segment{Addr: address(foreign), Length: uint32(most)})
	clear(foreign)
	b.done(1, DoneReceive)
	a.done(3, DoneSend)
	require.Equal(t, want, b.memory[:most])
}

// A chain is one doorbell, in order, and its last request alone is signalled.
func TestChain(t *testing.T) {
	a, b := pair(t)
	b.receive(1, b.segment(0, 64))
	c := a.sends(5)
	fill(a.memory[:64], 5)
	for i := range 4 {
		require.NoError(t, c.Add(Request{Op: OpWrite, Remote: b.remote(1000 + 16*i), Key: b.mr.RemoteKey()}, a.segment(16*i, 16)))
	}
	require.NoError(t, c.Add(Request{ID: 2, Op: OpSend, Flags: Signaled}, a.segment(0, 8)))
	require.ErrorIs(t, c.Add(Request{Op: OpSend}), ErrChainFull)
	require.ErrorIs(t, ErrChainFull, stepvan.ErrWouldBlock)
	require.Zero(t, c.Room())

	posted, err := a.qp.PostSend(c)
	require.NoError(t, err)
	require.Equal(t, 5, posted)
	b.done(1, DoneReceive)
	require.True(t, bytes.Equal(a.memory[:64], b.memory[1000:1064]), "what was written is there before the message")
	a.done(2, DoneSend)
	require.Equal(t, Counters{Doorbells: 1, Requests: 5, Signaled: 1, Bytes: 72}, a.qp.Counters())
	require.Equal(t, Counters{ReceiveDoorbells: 1, Receives: 1}, b.qp.Counters())

	c.Reset()
	require.Zero(t, c.Len())
	posted, err = a.qp.PostSend(c)
	require.NoError(t, err)
	require.Zero(t, posted)
	require.Equal(t, uint64(1), a.qp.Counters().Doorbells)
}

func TestEachLinkOfAChainThatFits(t *testing.T) {
	if rdma(t).iWARP() {
		t.Skip("soft-iWARP sends while requests are posted, so its queue is not full")
	}
	a, b := pair(t)
	room := a.qp.Caps().SendRequests
	more := room + 4
	c := a.sends(more)
	for i := range more {
		require.NoError(t, c.Add(Request{ID: uint64(i), Op: OpWrite, Flags: Signaled, Remote: b.remote(0), Key: b.mr.RemoteKey()}, a.segment(0, 1)))
	}
	posted, err := a.qp.PostSend(c)
	var e *Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, syscall.ENOMEM, e.Errno)
	require.NotErrorIs(t, err, stepvan.ErrNoMemory)
	require.Contains(t, err.Error(), "post_send: "+a.device.Name()+": cannot allocate memory: the send queue is full")
	require.GreaterOrEqual(t, posted, room)
	require.Less(t, posted, more)
	require.Equal(t, uint64(posted), a.qp.Counters().Requests)
	require.Equal(t, uint64(posted), a.qp.Counters().Bytes)
	for i := range posted {
		a.done(uint64(i), DoneWrite)
	}
}

func TestTooMuchInline(t *testing.T) {
	a, _ := pair(t)
	c := a.sends(1)
	require.NoError(t, c.Add(Request{Op: OpSend, Flags: Inline}, a.segment(0, a.qp.Caps().Inline+1)))
	posted, err := a.qp.PostSend(c)
	require.Zero(t, posted)
	require.ErrorIs(t, err, syscall.EINVAL) // of soft-RoCE and soft-iWARP; others say ENOMEM
	require.ErrorContains(t, err, "more inline data or segments than the queue pair takes")
}

func TestQueueOfReceivesIsFull(t *testing.T) {
	a, _ := pair(t)
	c, err := a.library.NewReceiveChain(a.qp.Caps().ReceiveRequests+1, 2*a.qp.Caps().ReceiveRequests)
	closing(t, c, err)
	for i := range a.qp.Caps().ReceiveRequests + 1 {
		require.NoError(t, c.Add(uint64(i), a.segment(0, 8)))
	}
	posted, err := a.qp.PostReceive(c)
	var e *Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, a.qp.Caps().ReceiveRequests, posted)
	require.Equal(t, uint64(posted), a.qp.Counters().Receives)
}

func TestWrongKey(t *testing.T) {
	if rdma(t).iWARP() {
		t.Skip("the peer ends the connection, after which soft-iWARP may count its references wrongly and refuse others")
	}
	for name, wrong := range map[string]func(b *node, r *Request){
		"key":    func(_ *node, r *Request) { r.Key ^= 0x5500 },
		"range":  func(b *node, r *Request) { r.Remote = b.remote(memoryBytes - 4) },
		"before": func(b *node, r *Request) { r.Remote = b.remote(-4) },
		"right":  func(b *node, r *Request) { r.Key = b.register(b.memory, LocalWrite|RemoteRead).RemoteKey() },
	} {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t)
			r := Request{ID: 4, Op: OpWrite, Flags: Signaled, Remote: b.remote(0), Key: b.mr.RemoteKey()}
			wrong(b, &r)
			fill(a.memory[:8], 1)
			a.post(r, a.segment(0, 8))
			got := a.completion()
			require.Equal(t, uint64(4), got.ID)
			require.Equal(t, StatusRemoteAccess, got.Status)
			require.ErrorContains(t, got.Err("write", a.device.Name()), "the peer refused the access: wrong key, range or right (status 10,")
			require.Equal(t, make([]byte, 8), b.memory[:8], "nothing was written")

			c := a.sends(1)
			require.NoError(t, c.Add(Request{ID: 5, Op: OpSend, Flags: Signaled}, a.segment(0, 8)))
			if _, err := a.qp.PostSend(c); err == nil {
				flushed := a.completion()
				require.Equal(t, StatusFlushed, flushed.Status)
			}
		})
	}
}

// A completion queue that overflows is an asynchronous event, which names the queue.
func TestAsynchronousEvent(t *testing.T) {
	m := rdma(t)
	if m.iWARP() {
		t.Skip("soft-iWARP does not report it")
	}
	l := library(t)
	a, b := newNode(t, l, m.device[0]), newNode(t, l, m.device[1])
	small, err := a.device.NewCQ(1, nil, 0)
	closing(t, small, err)
	a.options.SendCQ = small
	connect(a, b, m)
	_, ok, err := a.device.Event()
	require.NoError(t, err)
	require.False(t, ok)
	for range small.Size() + 1 {
		a.post(Request{Op: OpWrite, Flags: Signaled, Remote: b.remote(0), Key: b.mr.RemoteKey()}, a.segment(0, 8))
	}
	readable(t, a.device.EventFD())
	e, ok, err := a.device.Event()
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, EventCQError, e.Kind)
	require.Same(t, small, e.CQ)
}

func TestNoReceivePosted(t *testing.T) {
	a, b := pair(t)
	if rdma(t).iWARP() {
		t.Skip("soft-iWARP has no such answer: the stream stops")
	}
	_ = b
	a.post(Request{ID: 1, Op: OpSend, Flags: Signaled}, a.segment(0, 8))
	require.Equal(t, StatusNotReady, func() Status { c := a.completion(); return c.Status }())
}

func TestFlushOfOwnQueue(t *testing.T) {
	a, _ := pair(t)
	a.receive(11, a.segment(0, 8))
	state, caps, err := a.qp.Query()
	require.NoError(t, err)
	require.Equal(t, a.qp.Caps(), caps)
	if rdma(t).iWARP() {
		state = QPReadyToSend // soft-iWARP does not tell
	}
	require.Equal(t, QPReadyToSend, state)
	require.NoError(t, a.qp.Fail())
	c := a.completion()
	require.Equal(t, Completion{ID: 11, Status: StatusFlushed, QP: a.qp.Number()}, Completion{ID: c.ID, Status: c.Status, QP: c.QP})
	state, _, err = a.qp.Query()
	require.NoError(t, err)
	require.True(t, state == QPError || rdma(t).iWARP())
}

func TestDisconnect(t *testing.T) {
	a, b := pair(t)
	b.receive(1, b.segment(0, 8))
	require.NoError(t, a.id.Disconnect())
	b.event(Disconnected)
	require.NoError(t, b.id.Disconnect())
	a.event(Disconnected)
	c := b.completion()
	require.Equal(t, StatusFlushed, c.Status)
}

// A peer that closes without a word is known at once: its kernel says so.
func TestPeerCloses(t *testing.T) {
	a, b := pair(t)
	b.detach()
	a.event(Disconnected)
	require.NoError(t, a.id.Disconnect())
	require.ErrorIs(t, b.id.Disconnect(), stepvan.ErrClosed)
}

func TestCompletionChannel(t *testing.T) {
	m := rdma(t)
	l := library(t)
	a, b := newNode(t, l, m.device[0]), newNode(t, l, m.device[1])
	channel, err := b.device.NewCompletionChannel()
	closing(t, channel, err)
	cq, err := b.device.NewCQ(16, channel, 0)
	closing(t, cq, err)
	b.cq, b.options.SendCQ, b.options.ReceiveCQ = cq, cq, cq
	connect(a, b, m)

	epoll, err := unix.EpollCreate1(0)
	require.NoError(t, err)
	defer unix.Close(epoll)
	require.NoError(t, unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, channel.FD(), &unix.EpollEvent{Events: unix.EPOLLIN}))
	events := make([]unix.EpollEvent, 1)

	got, err := channel.Next()
	require.NoError(t, err)
	require.Nil(t, got)
	for i := range 3 {
		b.receive(uint64(i), b.segment(0, 8))
		require.NoError(t, cq.Arm(false))
		a.post(Request{Op: OpSend, Flags: Signaled}, a.segment(0, 8))
		n, err := unix.EpollWait(epoll, events, int(patience/time.Millisecond))
		require.NoError(t, err)
		require.Equal(t, 1, n)
		got, err = channel.Next()
		require.NoError(t, err)
		require.Same(t, cq, got)
		b.done(uint64(i), DoneReceive)
		a.done(0, DoneSend)
	}
	b.receive(9, b.segment(0, 8))
	a.post(Request{Op: OpSend, Flags: Signaled}, a.segment(0, 8))
	b.done(9, DoneReceive)
	a.done(0, DoneSend)
	got, err = channel.Next()
	require.NoError(t, err)
	require.Nil(t, got, "the queue was not armed")
	require.ErrorContains(t, channel.Close(), "completion queue of "+m.device[1]+" still uses it")
}

// Queues and connections may be closed while another goroutine reads the events of their channels.
func TestCloseBesideEvents(t *testing.T) {
	m := rdma(t)
	l := library(t)
	a, b := newNode(t, l, m.device[0]), newNode(t, l, m.device[1])
	channel, err := b.device.NewCompletionChannel()
	closing(t, channel, err)
	for range 5 {
		cq, err := b.device.NewCQ(16, channel, 0)
		require.NoError(t, err)
		b.options.SendCQ, b.options.ReceiveCQ = cq, cq
		connect(a, b, m)
		b.receive(1, b.segment(0, 8))
		require.NoError(t, cq.Arm(false))
		stop, stopped := make(chan struct{}), make(chan error, 1)
		go func() {
			for {
				_, err := channel.Next()
				_, _, more := b.events.Next()
				select {
				case <-stop:
					stopped <- errors.Join(err, more)
					return
				default:
				}
			}
		}()
		a.post(Request{Op: OpSend, Flags: Signaled | Inline}, a.segment(0, 8))
		a.done(0, DoneSend)
		require.NoError(t, a.id.Disconnect())
		b.detach()
		require.NoError(t, cq.Close())
		close(stop)
		require.NoError(t, <-stopped)
		a.detach()
		a.drain()
	}
}

// drain reads the events that nobody wants any more.
func (n *node) drain() {
	for ok := true; ok; {
		var err error
		_, ok, err = n.events.Next()
		require.NoError(n.t, err)
	}
}

// A window is a key for a part of the memory, for one queue pair, until it is invalidated.
func TestWindow(t *testing.T) {
	a, b := pair(t)
	attributes, err := b.device.Query()
	require.NoError(t, err)
	if rdma(t).iWARP() {
		require.False(t, attributes.WindowsOfType2)
		_, err := b.pd.NewMW()
		require.ErrorIs(t, err, stepvan.ErrNotSupported)
		return
	}
	require.True(t, attributes.WindowsOfType2)
	of := b.register(b.memory, LocalWrite|BindWindows)
	mw, err := b.pd.NewMW()
	closing(t, mw, err)
	c := b.sends(2)
	key, err := c.Bind(1, Signaled, mw, of, address(b.memory)+8192, 4096, RemoteWrite)
	require.NoError(t, err)
	_, err = b.qp.PostSend(c)
	require.NoError(t, err)
	b.done(1, DoneBind)

	copy(a.memory, "through the window")
	a.post(Request{ID: 2, Op: OpWrite, Flags: Signaled, Remote: b.remote(8192), Key: key}, a.segment(0, 18))
	a.done(2, DoneWrite)
	require.Equal(t, "through the window", string(b.memory[8192:8210]))

	b.post(Request{ID: 3, Op: OpInvalidate, Flags: Signaled, Invalidate: key})
	b.done(3, DoneInvalidate)
	copy(a.memory, "too late")
	a.post(Request{ID: 4, Op: OpWrite, Flags: Signaled, Remote: b.remote(8192), Key: key}, a.segment(0, 8))
	require.Equal(t, StatusRemoteAccess, func() Status { c := a.completion(); return c.Status }())
	require.Equal(t, "through the window", string(b.memory[8192:8210]))
}

// window binds a part of the memory of n.
func (n *node) window(access Access) RemoteKey {
	n.t.Helper()
	of := n.register(n.memory, LocalWrite|BindWindows)
	mw, err := n.pd.NewMW()
	closing(n.t, mw, err)
	c := n.sends(1)
	key, err := c.Bind(1, Signaled, mw, of, address(n.memory)+8192, 4096, access)
	require.NoError(n.t, err)
	_, err = n.qp.PostSend(c)
	require.NoError(n.t, err)
	n.done(1, DoneBind)
	require.Equal(n.t, key, mw.Key())
	return key
}

// A key of a window is refused outside of its memory region, against its rights, and from other queue pairs. soft-RoCE
// does not check the bounds of the window itself.
func TestWindowRefuses(t *testing.T) {
	m := rdma(t)
	if m.iWARP() {
		t.Skip("soft-iWARP has no windows")
	}
	for name, c := range map[string]struct {
		at     int
		access Access
		second bool // write through another queue pair of the same two nodes
	}{
		"outside": {at: memoryBytes - 4, access: RemoteWrite},
		"right":   {at: 8192, access: RemoteRead},
		"other":   {at: 8192, access: RemoteWrite, second: true},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t)
			key := b.window(c.access)
			if c.second {
				from, to := *a, *b
				connect(&from, &to, m)
				a = &from
			}
			fill(a.memory[:8], 1)
			a.post(Request{ID: 2, Op: OpWrite, Flags: Signaled, Remote: b.remote(c.at), Key: key}, a.segment(0, 8))
			got := a.completion()
			require.Equal(t, StatusRemoteAccess, got.Status, got.Err("", ""))
			require.Equal(t, make([]byte, 4), b.memory[c.at:c.at+4])
		})
	}
}

func TestMemoryFile(t *testing.T) {
	a, b := pair(t)
	file, err := unix.MemfdCreate("verbs", 0)
	require.NoError(t, err)
	defer unix.Close(file)
	require.NoError(t, unix.Ftruncate(file, memoryBytes))
	shared, err := unix.Mmap(file, 0, memoryBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(shared)) })
	mr := b.register(shared, LocalWrite|RemoteWrite)
	fill(a.memory, 4)
	a.post(Request{Op: OpWrite, Flags: Signaled, Remote: uint64(address(shared)), Key: mr.RemoteKey()}, a.segment(0, memoryBytes))
	a.wrote(0, b)
	seen := make([]byte, memoryBytes)
	_, err = unix.Pread(file, seen, 0)
	require.NoError(t, err)
	require.True(t, bytes.Equal(a.memory, seen))
}

func TestHugePages(t *testing.T) {
	a, b := pair(t)
	const size = 4 << 20
	memory, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_HUGETLB)
	if errors.Is(err, unix.ENOMEM) {
		t.Skip("this machine has no huge pages to give: sysctl vm.nr_hugepages=8")
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(memory)) })
	mr := b.register(memory, LocalWrite|RemoteWrite)
	fill(a.memory, 9)
	for _, at := range []int{0, size - memoryBytes, 2<<20 - 5000} {
		a.post(Request{Op: OpWrite, Flags: Signaled, Remote: uint64(address(memory)) + uint64(at), Key: mr.RemoteKey()}, a.segment(0, memoryBytes))
		a.wrote(0, b)
		require.True(t, bytes.Equal(a.memory, memory[at:at+memoryBytes]))
	}
}

// Budget: a message costs no allocation on either side.
func TestPostAndPollDoNotAllocate(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	a, b := pair(t)
	sends := a.sends(2)
	receives, err := b.library.NewReceiveChain(1, 1)
	closing(t, receives, err)
	head := b.segment(0, 64)
	part, whole := a.segment(0, 4096), a.segment(0, 32)
	a.batch.room, b.batch.room = 16, 16
	var failure error
	try := func(err error) {
		if err != nil && failure == nil {
			failure = err
		}
	}
	wait := func(n *node) {
		for got := 0; got == 0 && failure == nil; {
			var err error
			got, err = n.cq.Poll(n.batch)
			try(err)
			if got > 0 {
				c := n.batch.At(0)
				try(c.Err("", ""))
			}
		}
	}
	require.Zero(t, testing.AllocsPerRun(50, func() {
		receives.Reset()
		try(receives.Add(1, head))
		_, err := b.qp.PostReceive(receives)
		try(err)
		sends.Reset()
		try(sends.Add(Request{Op: OpWrite, Remote: b.remote(4096), Key: b.mr.RemoteKey()}, part))
		try(sends.Add(Request{ID: 2, Op: OpSend, Flags: Signaled | Inline}, whole))
		_, err = a.qp.PostSend(sends)
		try(err)
		wait(a)
		wait(b)
		try(b.cq.Arm(false))
	}))
	require.NoError(t, failure)
}
