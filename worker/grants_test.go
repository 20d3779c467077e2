package worker_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	. "github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/server"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/worker"
)

const inFileOfItsOwn = 16 << 20 // floats: more than the first file of a node holds

// A file without a grant is lent when another grant has come back.
func TestGrantsThatComeFree(t *testing.T) {
	h := newHost(t, FewGrants(1), nil)
	lent := func(x tensor.Tensor) bool {
		t.Helper()
		handle, err := h.w.PushPull(nil, nil, List(x), Keys(1))
		require.NoError(t, err)
		m := h.server.Take(t)
		d := requestOf(t, m).Pulls[0]
		a := wire.KeyOf(1, int64(d.Bytes))
		payload := [][]byte{make([]byte, d.Bytes)}
		if d.Region != 0 {
			a.Flags, payload = wire.DescInPlace, nil
		}
		require.NoError(t, h.session.Send(&link.Outbound{
			Channel: link.ChannelResponse, Op: wire.OpResponse, Request: m.Header.Request, Pulls: 1, Meta: a.Append(nil), Payload: payload,
		}))
		m.Release()
		require.NoError(t, handle.Wait(Context(t)))
		return d.Region != 0
	}
	mem := h.node().Memory
	stays := shared(t, h.node(), many)
	r, err := mem.Zeros(tensor.Float32, inFileOfItsOwn)
	require.NoError(t, err)
	part, err := r.Slice(0, many)
	require.NoError(t, err)
	require.True(t, lent(part))
	for range 3 {
		require.False(t, lent(stays), "the only grant is out")
	}
	require.NoError(t, r.Region().Close())
	require.NoError(t, mem.Trim())
	for ctx := Context(t); !lent(stays); runtime.Gosched() {
		require.NoError(t, ctx.Err(), "the grant has come back and is not asked for")
	}
}

// Budget: 0 allocations per exchange with memory that has no grant. An attempt that fails would cost one.
func TestNoGrantIsNotAskedForEachTime(t *testing.T) {
	c := New(t, Options{Van: FewGrants(1), Worker: worker.Options{Handles: 32}, Server: server.Options{Handles: 32}})
	w, s := c.Workers[0], c.Servers[0]
	r, err := w.Memory.Zeros(tensor.Float32, inFileOfItsOwn)
	require.NoError(t, err)
	defer Free(t, r)
	elsewhere, err := r.Slice(0, many)
	require.NoError(t, err)
	var batch server.Batch
	answer := make([]tensor.Tensor, 1)
	round := func(pull []tensor.Tensor) {
		h, err := w.Do(&worker.Exchange{Pull: pull, PullKeys: oneKey})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.GetBatchFor(WaitLimit, stepvan.DefaultPolicy, &batch); err != nil {
			t.Fatal(err)
		}
		in := batch.Requests[0]
		if answer[0], err = in.Out(0); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Respond(answer, in.ID); err != nil {
			t.Fatal(err)
		}
		if err := h.WaitFor(WaitLimit); err != nil {
			t.Fatal(err)
		}
	}
	first, second := List(shared(t, w.Instance, many)), List(elsewhere)
	round(first)
	for range 500 {
		round(second)
	}
	if Race {
		return // waiters park, with timers of a sync.Pool
	}
	require.Zero(t, testing.AllocsPerRun(300, func() { round(second) }))
}

var oneKey = Keys(1)
