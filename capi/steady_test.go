//go:build cgo

package main

import (
	"runtime"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/capi/internal/numbers"
	"github.com/stepvan/stepvan/internal/race"
)

// cluster is a scheduler, a worker and a server of this process, as a C program would have them.
type cluster struct {
	t                         testing.TB
	scheduler, worker, server cUint64
	pin                       runtime.Pinner // what "C" holds
	e                         *cError
	settings                  []string
}

func (c *cluster) ok(code cCode) {
	c.t.Helper()
	require.Equal(c.t, codeOK, code, chars(&c.e.message))
}

func newCluster(t testing.TB, settings ...string) *cluster {
	c := &cluster{t: t, e: new(cError), settings: settings}
	t.Cleanup(c.pin.Unpin)
	c.scheduler = c.start("scheduler", "0")
	var info cInfo
	for info.root_port == 0 {
		c.ok(goInfo(c.scheduler, &info, c.e))
		runtime.Gosched()
	}
	port := decimal(int(info.root_port))
	c.worker, c.server = c.start("worker", port), c.start("server", port)
	for _, id := range []cUint64{c.scheduler, c.worker, c.server} {
		c.ok(goStartWait(id, -1, c.e))
	}
	t.Cleanup(c.stop)
	return c
}

func decimal(n int) string {
	if n < 10 {
		return string(rune('0' + n))
	}
	return decimal(n/10) + string(rune('0'+n%10))
}

// start begins a start, and waits for nobody.
func (c *cluster) start(role, port string) (id cUint64) {
	n := startNode(append([]string{
		"DMLC_ROLE=" + role, "DMLC_NUM_WORKER=1", "DMLC_NUM_SERVER=1", "DMLC_LOCAL=1", "DMLC_PS_ROOT_PORT=" + port, "STEPVAN_LOG_LEVEL=warn",
	}, c.settings...))
	return cUint64(nodes.Put(n))
}

// stop stops what is not closed, and closes it.
func (c *cluster) stop() {
	c.each(func(id cUint64, e *cError) {
		if code := goStop(id, -1, e); code != codeOK && code != codeClosed {
			c.t.Error(chars(&e.message))
		}
		goClose(id, e)
	})
}

// each does something with all nodes at once.
func (c *cluster) each(f func(id cUint64, e *cError)) {
	var all sync.WaitGroup
	for _, id := range []cUint64{c.worker, c.server, c.scheduler} {
		all.Go(func() { f(id, new(cError)) })
	}
	all.Wait()
}

// number makes a tensor of one float64 that C holds.
func (c *cluster) number(value float64) *cTensor {
	data := &value
	c.pin.Pin(data)
	t := &cTensor{data: unsafe.Pointer(data), bytes: 8, dtype: 13}
	c.pin.Pin(t)
	return t
}

func pinned[T any](c *cluster, n int) *T {
	list := make([]T, n)
	c.pin.Pin(&list[0])
	return &list[0]
}

// exchange is a round trip of 8 bytes each way, with the server on the caller's thread in between.
type exchange struct {
	*cluster
	x        *cExchange
	b        *cBatch
	answer   *cTensor
	handle   *cUint64
	response *cUint64
}

func newExchange(c *cluster, owner cUint64) *exchange {
	x := &exchange{cluster: c, x: new(cExchange), b: new(cBatch), answer: c.number(0), handle: pinned[cUint64](c, 1), response: pinned[cUint64](c, 1)}
	key := pinned[cUint64](c, 2)
	keys := unsafe.Slice(key, 2)
	keys[0], keys[1] = 1, 2
	*x.x = cExchange{push: c.number(4), pull: c.number(0), push_keys: &keys[0], pull_keys: &keys[1], pushes: 1, pulls: 1, owner: owner}
	*x.b = cBatch{
		requests: pinned[cRequest](c, 4), push: pinned[cTensor](c, 4), push_keys: pinned[cUint64](c, 4), pull: pinned[cTensor](c, 4), pull_keys: pinned[cUint64](c, 4),
		request_capacity: 4, push_capacity: 4, pull_capacity: 4,
	}
	return x
}

func (x *exchange) round() {
	x.must(goPushPull(x.worker, x.x, x.handle, x.e))
	x.must(goGetBatch(x.server, 0, 0, -1, x.b, x.e))
	*(*float64)(x.answer.data) = *(*float64)(x.b.push.data) * 2
	x.must(goRespond(x.server, x.b.requests.handler, x.answer, 1, x.x.owner, x.response, x.e))
	x.must(goWait(x.worker, *x.handle, -1, x.e))
	x.must(goResponseWait(x.server, *x.response, -1, x.e))
}

func (x *exchange) must(code cCode) {
	if code != codeOK {
		x.t.Fatal(chars(&x.e.message))
	}
}

// Budget: 0 allocations in the steady state for push_pull, wait, get_batch and respond, with tensors that have no
// number and an owner.
func TestExchangesAllocateNothing(t *testing.T) {
	x := newExchange(newCluster(t), 77)
	owners := pinned[cUint64](x.cluster, 8)
	for range 300 { // records of handles and responses grow by pages
		x.round()
		goReleased(owners, 8)
	}
	require.Equal(t, 8.0, *(*float64)(x.x.pull.data))
	got := testing.AllocsPerRun(500, func() {
		x.round()
		goReleased(owners, 8)
	})
	if !race.Enabled {
		require.Less(t, got, 1.0)
	}
}

func TestRespondCopyAllocatesNothing(t *testing.T) {
	x := newExchange(newCluster(t), 0)
	owners, borrowed := pinned[cUint64](x.cluster, 8), pinned[cInt32](x.cluster, 1)
	round := func() {
		x.must(goPushPull(x.worker, x.x, x.handle, x.e))
		x.must(goGetBatch(x.server, 0, 0, -1, x.b, x.e))
		x.must(goRespondCopy(x.server, x.b.requests.handler, x.answer, 1, 77, x.response, borrowed, x.e))
		x.must(goWait(x.worker, *x.handle, -1, x.e))
		goReleased(owners, 8)
	}
	for range 300 {
		round()
	}
	got := testing.AllocsPerRun(500, round)
	if !race.Enabled {
		require.Less(t, got, 1.0)
	}
}

func TestEveryOperationHandsItsOwnerBackOnce(t *testing.T) {
	x := newExchange(newCluster(t), 78)
	owners := pinned[cUint64](x.cluster, 8)
	const rounds = 20
	back := 0
	for range rounds {
		x.round()
		back += int(goReleased(owners, 8))
	}
	require.Equal(t, 2*rounds, back)
}

func TestNodesEndWithTheirNumber(t *testing.T) {
	e := new(cError)
	id := (&cluster{t: t, e: e}).start("worker", "1")
	require.Equal(t, codeTimeout, goStartWait(id, 0, e), "nobody is there")
	require.Equal(t, codeBusy, goHealth(id, e))
	require.Equal(t, codeOK, goClose(id, e))
	_, ok := nodes.Get(numbers.ID(id))
	require.False(t, ok)
	require.Equal(t, codeClosed, goClose(id, e))
	require.Contains(t, chars(&e.message), "was closed")
}
