//go:build cgo

package main

import (
	"context"
	"math"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/capi/internal/numbers"
	"github.com/stepvan/stepvan/ps"
)

func TestMemoryThatIsUsedAfterARefusalIsGivenBackLater(t *testing.T) {
	var l foreignMemory
	o := l.begin(7)
	w, r := l.expose(make([]byte, 8), o)
	l.use(o)
	require.NoError(t, r.Retain())
	l.end(o, true)
	w.Shut()
	require.False(t, l.endUnused(o))
	require.Empty(t, collected(&l), "still held")
	r.Release()
	require.Equal(t, []uint64{7}, collected(&l))

	o = l.begin(8)
	require.True(t, l.endUnused(o))
	require.True(t, l.endUnused(nil))
	require.Empty(t, collected(&l))
}

// back are the owners that C gets.
func back() (owners []uint64) {
	var some [16]uint64
	for n := 1; n > 0; {
		n = foreign.collect(some[:])
		owners = append(owners, some[:n]...)
	}
	return owners
}

// A call that is refused takes no owner, and nothing of its memory is used when it returns.
func TestRefusalsTakeNoOwner(t *testing.T) {
	c := newCluster(t)
	x := newExchange(c, 81)
	key, rank, rows := pinned[cUint64](c, 1), pinned[cUint32](c, 1), pinned[cInt64](c, 1)
	number := pinned[cUint64](c, 1)
	*key, *rows = 5, 1
	wrong := c.number(1)
	wrong.bytes = 7
	odd := c.number(1)
	odd.data = unsafe.Add(unsafe.Pointer(pinned[float64](c, 2)), 1)
	elsewhere := c.number(1)
	elsewhere.device_kind = 99
	big := c.number(1)
	big.data, big.bytes, big.shape[0], big.rank = unsafe.Pointer(pinned[float64](c, 3)), 24, 3, 1

	chunk, good := c.number(0), c.number(0)
	c.ok(goRegisterRecvBuffer(c.server, chunk, 0, rank, key, 1, -1, number, c.e))
	held := *number
	x.must(goPushPull(x.worker, x.x, x.handle, x.e)) // keeps the keys
	x.must(goGetBatch(x.server, 0, 0, -1, x.b, x.e))
	handler := x.b.requests.handler
	require.Empty(t, back())

	two := pinned[cUint64](c, 2)
	push := func(of *cTensor) func() cCode {
		return func() cCode {
			other := *x.x
			other.push, other.push_keys = of, key
			return goPushPull(c.worker, &other, number, c.e)
		}
	}
	register := func(node cUint64, of *cTensor, rank *cUint32, count cUint64) func() cCode {
		return func() cCode {
			*number = 7
			code := goRegisterRecvBuffer(node, of, 81, rank, two, count, -1, number, c.e)
			require.Zero(t, *number, "which tells that the owner was not taken")
			return code
		}
	}
	unknownRanks := pinned[cUint32](c, 2)
	*unknownRanks = 9
	for _, r := range []struct {
		name string
		want cCode
		call func() cCode
	}{
		{"push: sizes", codeInvalid, push(wrong)},
		{"push: unaligned", codeInvalid, push(odd)},
		{"push: device", codeInvalid, push(elsewhere)},
		{"push: busy key", codeBusy, func() cCode { return goPushPull(c.worker, x.x, number, c.e) }},
		{"push: no worker", codeInvalid, func() cCode { return goPushPull(c.server, x.x, number, c.e) }},
		{"push: no node", codeStale, func() cCode { return goPushPull(0, x.x, number, c.e) }},
		{"register: sizes", codeInvalid, func() cCode { return goRegister(c.worker, wrong, 81, number, c.e) }},
		{"register: no worker", codeInvalid, func() cCode { return goRegister(c.scheduler, good, 81, number, c.e) }},
		{"wrap", codeInvalid, func() cCode { return goWrap(good.data, 0, 81, number, c.e) }},
		{"respond: sizes", codeInvalid, func() cCode { return goRespond(c.server, handler, big, 1, 81, number, c.e) }},
		{"respond: counts", codeInvalid, func() cCode { return goRespond(c.server, handler, nil, 0, 81, number, c.e) }},
		{"respond: no request", codeStale, func() cCode { return goRespond(c.server, math.MaxUint64, good, 1, 81, number, c.e) }},
		{"rows: sizes", codeInvalid, func() cCode { return goRespondVec(c.server, wrong, rows, &x.b.requests.handler, 1, 81, number, c.e) }},
		{"rows: a scalar", codeInvalid, func() cCode { return goRespondVec(c.server, good, rows, &x.b.requests.handler, 1, 81, number, c.e) }},
		{"buffer: sizes", codeInvalid, register(c.server, wrong, rank, 1)},
		{"buffer: unaligned", codeInvalid, register(c.server, odd, rank, 1)},
		{"buffer: not divisible", codeInvalid, register(c.server, big, pinned[cUint32](c, 2), 2)},
		{"buffer: unknown ranks", codeInvalid, register(c.server, good, unknownRanks, 1)},
		{"buffer: overlaps", codeInvalid, register(c.server, chunk, rank, 1)},
		{"buffer: no server", codeInvalid, register(c.worker, good, rank, 1)},
		{"buffer: no node", codeStale, register(0, good, rank, 1)},
	} {
		require.Equal(t, r.want, r.call(), "%s: %s", r.name, chars(&c.e.message))
		free := foreign.windows.Unused()
		require.Equal(t, r.want, r.call(), r.name)
		require.Equal(t, free, foreign.windows.Unused(), r.name)
		require.Empty(t, back(), r.name)
	}
	c.ok(goRespond(c.server, handler, x.answer, 1, 0, nil, c.e))
	c.ok(goWait(c.worker, *x.handle, -1, c.e))
	c.ok(goUnregister(held, -1, c.e))
	require.Equal(t, []uint64{81}, back(), "that of the exchange")
}

// Too much is outstanding: what is refused then takes no owner, and each of the others comes back once.
func TestRefusalsOfWhatIsTooMuch(t *testing.T) {
	c := newCluster(t, "STEPVAN_OUTSTANDING=2")
	x := newExchange(c, 82)
	key := pinned[cUint64](c, 1)
	handles := []cUint64{}
	var code cCode
	for ; code == codeOK && len(handles) < 1000; *key++ {
		other := *x.x
		other.push_keys = key
		if code = goPushPull(c.worker, &other, x.handle, c.e); code == codeOK {
			handles = append(handles, *x.handle)
		}
	}
	require.Equal(t, codeWouldBlock, code)
	for range handles {
		x.must(goGetBatch(x.server, 0, 0, -1, x.b, x.e))
		x.must(goRespond(x.server, x.b.requests.handler, x.answer, 1, 0, nil, x.e))
	}
	for _, h := range handles {
		x.must(goWait(c.worker, h, -1, x.e))
	}
	require.Len(t, back(), len(handles))
}

// Whether a buffer is refused before the call returns or after, its owner comes back to the program once. The number
// of the call tells how.
func TestRegistrationsThatAreRefusedLate(t *testing.T) {
	c := newCluster(t)
	of, rank, key, number := c.number(0), pinned[cUint32](c, 1), pinned[cUint64](c, 1), pinned[cUint64](c, 1)
	*rank = 9
	for range 50 {
		code := goRegisterRecvBuffer(c.server, of, 83, rank, key, 1, 0, number, c.e)
		if *number == 0 {
			require.Equal(t, codeInvalid, code)
			require.Empty(t, back())
			continue
		}
		require.Equal(t, codeTimeout, code)
		require.Equal(t, codeInvalid, goRegistrationWait(*number, -1, c.e))
		require.Equal(t, []uint64{83}, back())
		require.Equal(t, codeStale, goRegistrationWait(*number, -1, c.e))
		require.Contains(t, chars(&c.e.message), "was ended, or failed")
	}
}

// What a node that was stopped or closed is asked for takes no owner.
func TestClosedNodesTakeNoOwner(t *testing.T) {
	c := newCluster(t)
	x := newExchange(c, 84)
	key, rank, rows := pinned[cUint64](c, 1), pinned[cUint32](c, 1), pinned[cInt64](c, 1)
	ask := func() {
		number := pinned[cUint64](c, 1)
		for name, code := range map[string]cCode{
			"push_pull":            goPushPull(c.worker, x.x, number, c.e),
			"register":             goRegister(c.worker, x.answer, 84, number, c.e),
			"register_recv_buffer": goRegisterRecvBuffer(c.server, x.answer, 84, rank, key, 1, -1, number, c.e),
		} {
			require.Equal(t, codeClosed, code, name)
			require.Zero(t, *number, name)
		}
		for name, code := range map[string]cCode{
			"respond":     goRespond(c.server, 1, x.answer, 1, 84, number, c.e),
			"respond_vec": goRespondVec(c.server, x.answer, rows, key, 1, 84, number, c.e),
		} {
			require.NotEqual(t, codeOK, code, name)
		}
		require.Empty(t, back())
	}
	c.each(func(id cUint64, e *cError) { require.Equal(t, codeOK, goStop(id, -1, e)) })
	ask()
	c.each(func(id cUint64, e *cError) { require.Equal(t, codeOK, goClose(id, e)) })
	ask()
}

// A panic on a goroutine of the library is the error of the call that waits for it, and ends nothing else.
func TestPanicsOfGoroutinesAreErrorsOfWaits(t *testing.T) {
	e := new(cError)
	startFrom = func(context.Context, []string, ...ps.Option) (*ps.Node, error) { panic("in a start") }
	defer func() { startFrom = ps.StartFrom }()
	id := cUint64(nodes.Put(startNode(nil)))
	require.Equal(t, codeInternal, goStartWait(id, -1, e))
	require.Contains(t, chars(&e.message), "in a start")

	broken := &node{giveUp: func() {}, started: make(chan struct{}), stopped: make(chan struct{}), server: new(ps.Server)}
	close(broken.started)
	broken.live.Store(new(ps.Node)) // whose methods panic
	id = cUint64(nodes.Put(broken))
	c := &cluster{t: t, e: e}
	defer c.pin.Unpin()
	number := pinned[cUint64](c, 1)
	require.Equal(t, codeInternal, goRegisterRecvBuffer(id, c.number(0), 86, pinned[cUint32](c, 1), pinned[cUint64](c, 1), 1, -1, number, e))
	require.Zero(t, *number)
	require.Empty(t, back())
	require.Equal(t, codeInternal, goStop(id, -1, e))
	require.Contains(t, chars(&e.message), "panic")

	r := &registration{node: broken, begun: make(chan struct{}), recv: new(ps.ReceiveBuffer)}
	close(r.begun)
	require.NoError(t, r.number(number))
	require.Equal(t, codeInternal, goUnregister(*number, -1, e))
	registrations.Take(numbers.ID(*number))
	nodes.Take(numbers.ID(id))

	queue, fd := pinned[cUint64](c, 1), new(cInt32)
	require.Equal(t, codeOK, goQueueOpen(queue, fd, e))
	require.NoError(t, notify(*queue, 9, false, func(context.Context) error { panic("in a wait") }))
	readable := []unix.PollFd{{Fd: int32(*fd), Events: unix.POLLIN}}
	n, err := unix.Poll(readable, 10000)
	require.NoError(t, err)
	require.Equal(t, 1, n, "it is told nevertheless")
	require.Equal(t, codeOK, goQueueClose(*queue, e))
}

// The scheduler meets the others in barriers that name it.
func TestBarriersWithTheScheduler(t *testing.T) {
	c := newCluster(t)
	for _, groups := range []cUint32{roleWorker | roleServer | roleScheduler, roleWorker | roleServer | roleScheduler} {
		c.each(func(id cUint64, e *cError) {
			if code := goBarrier(id, groups, 1, -1, e); code != codeOK {
				t.Error(chars(&e.message))
			}
		})
	}
	for _, groups := range []cUint32{0, roleScheduler, roleWorker | roleServer, rolePeer, 16, roleWorker | roleScheduler | 16} {
		require.Equal(t, codeInvalid, goBarrier(c.scheduler, groups, 1, 0, c.e), groups)
	}
	require.Equal(t, codeTimeout, goBarrier(c.scheduler, roleServer|roleScheduler, 1, 1000, c.e))
	require.Equal(t, codeInvalid, goBarrier(c.worker, roleServer|roleScheduler, 1, 0, c.e))
}

func TestTextsOfNumbersThatNameNothing(t *testing.T) {
	c := newCluster(t)
	number, fd := pinned[cUint64](c, 1), new(cInt32)
	of := c.number(0)
	refused := func(want cCode, text string, code cCode) {
		t.Helper()
		require.Equal(t, want, code)
		require.Contains(t, chars(&c.e.message), text)
	}
	refused(codeStale, "77 is not the number of a node", goHealth(77, c.e))
	refused(codeStale, "77 is not the number of a memory", goFree(77, c.e))
	refused(codeStale, "77 is not the number of a registration", goUnregister(77, 0, c.e))
	refused(codeStale, "77 is not the number of a queue", goQueueClose(77, c.e))
	c.ok(goWrap(of.data, 8, 0, number, c.e))
	c.ok(goFree(*number, c.e))
	refused(codeStale, "was freed", goFree(*number, c.e))
	c.ok(goQueueOpen(number, fd, c.e))
	c.ok(goQueueClose(*number, c.e))
	refused(codeStale, "was closed", goQueueClose(*number, c.e))
	c.ok(goRegister(c.worker, of, 0, number, c.e))
	c.ok(goUnregister(*number, 0, c.e))
	refused(codeStale, "was ended", goUnregister(*number, 0, c.e))
	c.ok(goRegister(c.worker, of, 0, number, c.e))
	c.stop()
	refused(codeClosed, "its node, which was closed", goUnregister(*number, 0, c.e))
	refused(codeClosed, "its node, which was closed", goRegistrationWait(*number, 0, c.e))
	refused(codeClosed, "was closed", goWait(c.worker, 1, 0, c.e))
	refused(codeClosed, "was closed", goRespond(c.server, 1, of, 1, 0, nil, c.e))
	refused(codeClosed, "was closed", goClose(c.worker, c.e))
}

// A respond that copies hands its owner back before it returns: nobody need wait for the response.
func TestRespondCopyHandsItsOwnerBackAtOnce(t *testing.T) {
	x := newExchange(newCluster(t), 0)
	owners := pinned[cUint64](x.cluster, 8)
	borrowed, rows := pinned[cInt32](x.cluster, 1), pinned[cInt64](x.cluster, 1)
	*rows = 1
	x.answer.rank, x.answer.shape[0] = 1, 1
	for i := range 20 {
		x.must(goPushPull(x.worker, x.x, x.handle, x.e))
		x.must(goGetBatch(x.server, 0, 0, -1, x.b, x.e))
		value := float64(i)
		*(*float64)(x.answer.data), *borrowed = value, 7
		if i%2 == 0 {
			x.must(goRespondCopy(x.server, x.b.requests.handler, x.answer, 1, 77, x.response, borrowed, x.e))
		} else {
			x.must(goRespondVecCopy(x.server, x.answer, rows, &x.b.requests.handler, 1, 77, x.response, borrowed, x.e))
		}
		*(*float64)(x.answer.data) = -1
		require.Zero(t, *borrowed)
		require.EqualValues(t, 1, goReleased(owners, 8))
		require.EqualValues(t, 77, *owners)
		x.must(goWait(x.worker, *x.handle, -1, x.e))
		require.Equal(t, value, *(*float64)(x.x.pull.data))
		x.must(goResponseWait(x.server, *x.response, -1, x.e))
	}
}
