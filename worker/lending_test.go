package worker_test

import (
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	. "github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/server"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/trace"
	"github.com/stepvan/stepvan/worker"
)

const many = 10_000 // floats: more bytes than are sent where they can be read in place

// shared makes a tensor that servers of a one-sided van reach, and closes it in the end.
func shared(t testing.TB, n Instance, floats int64) tensor.Tensor {
	t.Helper()
	x, err := n.Memory.Zeros(tensor.Float32, floats)
	require.NoError(t, err)
	t.Cleanup(func() { Free(t, x) })
	return x
}

// inPlace repeats an exchange that needs to send no tensor.
func inPlace(t testing.TB, v Van) (round func()) {
	ring := trace.NewRing(64)
	c := New(t, Options{
		Van:    v,
		Worker: worker.Options{Handles: 32, Trace: ring},
		Server: server.Options{Handles: 32, Trace: ring},
	})
	w, s := c.Workers[0], c.Servers[0]
	req := worker.Exchange{
		Push: List(shared(t, w.Instance, many)), PushKeys: Keys(1),
		Pull: List(shared(t, w.Instance, many), shared(t, w.Instance, 8)), PullKeys: Keys(2, 3), Variable: []bool{true, false},
	}
	var batch server.Batch
	answer := make([]tensor.Tensor, 2)
	return func() {
		h, err := w.Do(&req)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.GetBatchFor(WaitLimit, stepvan.DefaultPolicy, &batch); err != nil {
			t.Fatal(err)
		}
		r := batch.Requests[0]
		x, err := r.In(0)
		if err != nil {
			t.Fatal(err)
		}
		for i := range answer {
			if answer[i], err = r.Out(i); err != nil {
				t.Fatal(err)
			}
		}
		copy(answer[0].Bytes(), x.Bytes())
		if _, err := s.Respond(answer, r.ID); err != nil {
			t.Fatal(err)
		}
		if err := h.WaitFor(WaitLimit); err != nil {
			t.Fatal(err)
		}
	}
}

// Budget: 0 allocations per exchange in place, and for the same program over a van that must send its tensors.
func TestInPlaceAllocatesNothing(t *testing.T) {
	forVans(t, func(t *testing.T, v Van) {
		round := inPlace(t, v)
		for range 500 {
			round()
		}
		if Race {
			return // waiters park, with timers of a sync.Pool
		}
		require.Zero(t, testing.AllocsPerRun(300, round))
	})
}

func BenchmarkInPlace(b *testing.B) {
	for _, v := range Vans() {
		b.Run(v.Name, func(b *testing.B) {
			round := inPlace(b, v)
			b.ReportAllocs()
			for b.Loop() {
				round()
			}
		})
	}
}

// requestOf reads what the raw server got.
func requestOf(t *testing.T, m *link.Inbound) *wire.Request {
	t.Helper()
	r := new(wire.Request)
	require.NoError(t, r.Decode(&m.Header, m.Meta))
	return r
}

func (h *host) node() Instance { return h.worker.Instance }

func TestWhatIsLentToAServer(t *testing.T) {
	h := newHost(t, OneSided(), nil)
	large, other, small := shared(t, h.node(), many), shared(t, h.node(), many), shared(t, h.node(), 8)
	heap := Floats(t, make([]float32, many)...)
	h.lend(1, 4*many, 7)
	half, err := large.Slice(0, many/2)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		push    []tensor.Tensor
		key     tensor.Key
		pull    []tensor.Tensor
		inPlace bool
		offered []bool
	}{
		"a large push and pulls":    {List(large), 1, List(other, small, heap, Floats(t)), true, []bool{true, true, false, false}},
		"a small push":              {List(small), 1, List(large), false, []bool{true}},
		"a push of the heap":        {List(heap), 1, List(large), false, []bool{true}},
		"a push with a chunk":       {List(large), 7, List(other), false, []bool{true}},
		"a push without pulls":      {List(large), 1, nil, false, nil},
		"a push into which is read": {List(large), 1, List(half), false, []bool{true}},
	} {
		handle, err := h.w.PushPull(c.push, Keys(c.key), c.pull, Keys(11, 12, 13, 14)[:len(c.pull)])
		require.NoError(t, err, name)
		m := h.server.Take(t)
		r := requestOf(t, m)
		require.Equal(t, c.inPlace, r.Pushes[0].Flags&wire.DescInPlace != 0, name)
		require.Equal(t, c.inPlace, m.Header.Total == 0, name)
		if c.inPlace {
			v, err := h.session.Map(link.TargetOf(&r.Pushes[0]), int64(r.Pushes[0].Bytes), link.RightRead)
			require.NoError(t, err, name)
			require.Same(t, &c.push[0].Bytes()[0], &v.Bytes[0], name)
			v.Release()
		}
		var answers []wire.Descriptor
		var payload [][]byte
		for i, d := range r.Pulls {
			require.Equal(t, c.offered[i], d.Region != 0, "%s: pull %d", name, i)
			if c.offered[i] {
				v, err := h.session.Map(link.TargetOf(&d), int64(d.Bytes), link.RightWrite)
				require.NoError(t, err, name)
				require.Same(t, &c.pull[i].Bytes()[0], &v.Bytes[0], name)
				v.Release()
			}
			a := wire.KeyOf(d.Key, int64(d.Bytes))
			if c.offered[i] {
				a.Flags = wire.DescInPlace
			} else if d.Bytes > 0 {
				payload = append(payload, make([]byte, d.Bytes))
			}
			answers = append(answers, a)
		}
		require.NoError(t, h.session.Send(&link.Outbound{
			Channel: link.ChannelResponse, Op: wire.OpResponse, Request: m.Header.Request,
			Pulls: uint32(len(answers)), Meta: keyOf(answers...), Payload: payload,
		}))
		m.Release()
		require.NoError(t, handle.Wait(Context(t)), name)
		for h.w.Stats().BusyKeys > 0 {
			runtime.Gosched() // a request without pulls is answered after its handle
		}
	}
}

func TestNothingIsLentWhereThatIsNotWanted(t *testing.T) {
	h := newHost(t, OneSided(), nil)
	h.w = worker.New(h.worker.Transport, worker.Options{InPlaceBytes: -1})
	require.NoError(t, h.w.Join(0, []worker.Server{{Rank: 0, Name: "server 0", Session: h.dialled}}))
	large := shared(t, h.node(), many)
	_, err := h.w.PushPull(List(large), Keys(1), List(shared(t, h.node(), many)), Keys(2))
	require.NoError(t, err)
	m := h.server.Take(t)
	r := requestOf(t, m)
	require.Zero(t, r.Pushes[0].Region)
	require.Zero(t, r.Pulls[0].Region)
	require.EqualValues(t, 4*many, m.Header.Total)
	h.answer(m)
}

func TestAnswersInMemoryThatWasNeverLent(t *testing.T) {
	for _, v := range []Van{Mem(), OneSided()} {
		t.Run(v.Name, func(t *testing.T) {
			h := newHost(t, v, nil)
			handle, err := h.w.PushPull(nil, nil, List(shared(t, h.node(), many), Floats(t, 0, 0)), Keys(1, 2))
			require.NoError(t, err)
			m := h.server.Take(t)
			a, b := wire.KeyOf(1, 4*many), wire.KeyOf(2, 8)
			a.Flags, b.Flags = wire.DescInPlace, wire.DescInPlace
			require.NoError(t, h.session.Send(&link.Outbound{
				Channel: link.ChannelResponse, Op: wire.OpResponse, Request: m.Header.Request, Pulls: 2, Meta: keyOf(a, b),
			}))
			m.Release()
			err = handle.Wait(Context(t))
			require.ErrorIs(t, err, stepvan.ErrPeerLost)
			var broken *stepvan.ProtocolError
			require.ErrorAs(t, err, &broken)
			require.Error(t, h.server.Loss(t))
		})
	}
}

// A server that refuses a request does not reach its tensors any more.
func TestRefusedRequestsAreLentNoLonger(t *testing.T) {
	h := newHost(t, OneSided(), nil)
	large := shared(t, h.node(), many)
	handle, err := h.w.PushPull(List(large), Keys(1), List(Floats(t, 0)), Keys(2))
	require.NoError(t, err)
	m := h.server.Take(t)
	require.ErrorIs(t, large.Region().Close(), stepvan.ErrBusy)
	require.NoError(t, h.session.Send(&link.Outbound{
		Channel: link.ChannelResponse, Op: wire.OpResponse, Flags: wire.FlagError, Request: m.Header.Request, Meta: []byte("no"),
	}))
	m.Release()
	require.ErrorIs(t, handle.Wait(Context(t)), stepvan.ErrRemote)
}

// The grant of a file that goes back to the system is withdrawn, though no request follows.
func TestGrantsOfFilesThatAreGone(t *testing.T) {
	h := newHost(t, OneSided(), nil)
	ask := func(x tensor.Tensor) wire.Descriptor {
		handle, err := h.w.PushPull(nil, nil, List(x), Keys(1))
		require.NoError(t, err)
		m := h.server.Take(t)
		d := requestOf(t, m).Pulls[0]
		a := wire.KeyOf(1, int64(d.Bytes))
		a.Flags = wire.DescInPlace
		require.NoError(t, h.session.Send(&link.Outbound{
			Channel: link.ChannelResponse, Op: wire.OpResponse, Request: m.Header.Request, Pulls: 1, Meta: a.Append(nil),
		}))
		m.Release()
		require.NoError(t, handle.Wait(Context(t)))
		return d
	}
	mem := h.node().Memory
	stays := shared(t, h.node(), many)
	first := ask(stays)
	r, err := mem.Zeros(tensor.Float32, 16<<20) // more than the first file holds
	require.NoError(t, err)
	second := ask(r)
	require.NotEqual(t, first.Region, second.Region)
	require.NoError(t, r.Region().Close())
	require.NoError(t, mem.Trim())
	for ctx := Context(t); err == nil; runtime.Gosched() {
		require.NoError(t, ctx.Err(), "the server can still map it")
		var v link.View
		if v, err = h.session.Map(link.TargetOf(&second), 1, link.RightRead); err == nil {
			v.Release()
		}
	}
	require.ErrorIs(t, err, stepvan.ErrStale)
	require.Equal(t, first.Region, ask(stays).Region)
	v, err := h.session.Map(link.TargetOf(&first), 1, link.RightRead)
	require.NoError(t, err)
	v.Release()
}

// Several workers and servers make requests of all kinds at once. Each gets its own answers.
func TestManyInPlace(t *testing.T) {
	forVans(t, func(t *testing.T, v Van) {
		const workers, servers, lanes, rounds = 3, 2, 2, 40
		c := New(t, Options{Workers: workers, Servers: servers, Van: v, Server: server.Options{Policy: stepvan.AnyReady}})
		var sides sync.WaitGroup
		for k, s := range c.Servers {
			if k == 0 {
				_, err := s.RegisterRecvBuffer(Floats(t, make([]float32, workers*many)...), []stepvan.Rank{0, 1, 2}, Keys(10, 10, 10))
				require.NoError(t, err)
			}
			sides.Go(func() { double(t, s, k, workers*lanes*rounds) })
		}
		for i, w := range c.Workers {
			for lane := range lanes {
				push := shared(t, w.Instance, many)
				pull := List(shared(t, w.Instance, many), shared(t, w.Instance, 5), shared(t, w.Instance, many), shared(t, w.Instance, 5))
				sides.Go(func() {
					for round := range rounds {
						if err := exchange(w, lane, float32(i*10000+lane*1000+round), push, pull); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
		}
		sides.Wait()
	})
}

// exchange pushes x and expects k+2 times as much from server k.
func exchange(w *Worker, lane int, x float32, push tensor.Tensor, pull []tensor.Tensor) error {
	v, err := tensor.As[float32](push)
	if err != nil {
		return err
	}
	for i := range v {
		v[i] = x
	}
	k := tensor.Key(10 + 10*lane)
	h, err := w.PushPull(List(push), Keys(k), pull, Keys(k+1, k+2, k+1, k+2))
	if err != nil {
		return err
	}
	if err := h.WaitFor(WaitLimit); err != nil {
		return err
	}
	for s := range 2 {
		for j := range 2 {
			got, err := tensor.As[float32](pull[2*s+j])
			if err != nil {
				return err
			}
			for _, y := range got {
				if y != x*float32(s+2) {
					return fmt.Errorf("pushed %v, server %d has answered %v", x, s, y)
				}
			}
		}
	}
	return nil
}

// double answers that many requests: large pulls in place, small ones from its own memory.
func double(t *testing.T, s *Server, k, requests int) {
	own := make([]float32, 5)
	for n := 0; n < requests; {
		b, err := s.GetBatch(Context(t), stepvan.AnyReady)
		if err != nil {
			t.Error(err)
			return
		}
		for _, r := range b.Requests {
			if err := answerDouble(s, r, float32(k+2), own); err != nil {
				t.Error(err)
				return
			}
			n++
		}
	}
}

func answerDouble(s *Server, r server.Request, by float32, own []float32) error {
	in, err := r.In(0)
	if err != nil {
		return err
	}
	out, err := r.Out(0)
	if err != nil {
		return err
	}
	x, err := tensor.As[float32](in)
	if err != nil {
		return err
	}
	y, err := tensor.As[float32](out)
	if err != nil {
		return err
	}
	for i := range x {
		y[i] = x[i] * by
	}
	for i := range own {
		own[i] = x[0] * by
	}
	small, err := tensor.FromSlice(append([]float32(nil), own...))
	if err != nil {
		return err
	}
	_, err = s.Respond(List(out, small), r.ID)
	return err
}
