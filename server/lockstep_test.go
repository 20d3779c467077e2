package server_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	. "github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/server"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/worker"
)

const (
	refusedKey   = 10 // of the push that server 0 refuses
	refusedBytes = 1 << 20
	poolLimit    = 64 << 10
)

// refusal is a reason why a server refuses one push.
type refusal struct {
	name    string
	says    string
	prepare func(t *testing.T, s *Server) // registers at server 0 what makes it refuse
}

func refusals() []refusal {
	register := func(t *testing.T, s *Server, bytes, from int) {
		buffer, err := s.Memory.Zeros(tensor.Uint8, int64(bytes))
		require.NoError(t, err)
		part, err := buffer.Slice(int64(from), int64(bytes))
		require.NoError(t, err)
		reg, err := s.RegisterRecvBuffer(part, ranks(1), Keys(refusedKey))
		require.NoError(t, err)
		t.Cleanup(func() {
			_ = reg.Unregister() // an error when its server is closed already
			require.NoError(t, s.Server.Close())
			Free(t, buffer)
		})
	}
	return []refusal{
		{"larger than its chunk", "register a larger one", func(t *testing.T, s *Server) { register(t, s, 8, 0) }},
		{"chunk not aligned", "is not aligned", func(t *testing.T, s *Server) { register(t, s, 2*refusedBytes, 1) }},
		{"larger than the pool", "raise STEPVAN_POOL_BYTES", func(*testing.T, *Server) {}},
		{"no memory", "no memory for a push", func(*testing.T, *Server) {}},
	}
}

// rounds are steps that two workers push to two servers. Server 0 refuses step 1 of worker 1.
type rounds struct {
	*Cluster
	policy  stepvan.Policy
	refusal refusal
	pulls   bool
	handles [2][3]worker.Handle // by worker and step
	outs    [2][3][]tensor.Tensor
}

// In lock-step a refused request fails its batch and shifts no other. The other policies leave it out. Every handle
// ends.
func TestRefusedRequestsDoNotShiftBatches(t *testing.T) {
	for _, v := range Vans() {
		for _, why := range refusals() {
			for _, policy := range []stepvan.Policy{stepvan.LockStep, stepvan.AnyReady, stepvan.AtLeast(2)} {
				for _, pulls := range []bool{true, false} {
					t.Run(fmt.Sprintf("%s/%s/%v/pulls=%v", v.Name, why.name, policy, pulls), func(t *testing.T) {
						x := newRounds(t, v, why, policy, pulls)
						x.push(t)
						x.serve(t, x.Servers[1], []float32{0, 1, 2}, []float32{0, 1, 2})
						if policy == stepvan.LockStep {
							x.lockStep(t)
						} else {
							x.serve(t, x.Servers[0], []float32{0, 1, 2}, []float32{0, 2})
						}
						x.check(t)
					})
				}
			}
		}
	}
}

func newRounds(t *testing.T, v Van, why refusal, policy stepvan.Policy, pulls bool) *rounds {
	o := Options{
		Van: withOwnNetwork(v), Workers: 2, Servers: 2, Server: server.Options{Policy: policy, PoolLimit: poolLimit},
		Worker: worker.Options{InPlaceBytes: refusedBytes}, // the push is sent
	}
	if why.name == "no memory" {
		o.Server.PoolLimit = 4 * refusedBytes
		small, err := tensor.NewAllocator(tensor.Options{Name: "small", MaxBytes: refusedBytes / 2})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, small.Close()) })
		o.Server.Memory = small
	}
	x := &rounds{Cluster: New(t, o), policy: policy, refusal: why, pulls: pulls}
	why.prepare(t, x.Servers[0])
	other := x.Servers[1] // takes the push
	buffer, err := other.Memory.Zeros(tensor.Uint8, refusedBytes)
	require.NoError(t, err)
	_, err = other.RegisterRecvBuffer(buffer, ranks(1), Keys(refusedKey))
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, other.Server.Close())
		Free(t, buffer)
	})
	return x
}

// withOwnNetwork returns v with a network of its own.
func withOwnNetwork(v Van) Van {
	switch v.Name {
	case "mem":
		return Mem()
	case "one-sided":
		return OneSided()
	case "offload":
		return Offload()
	}
	return v
}

// push issues the three steps of each worker. Their number is the first value.
func (x *rounds) push(t *testing.T) {
	for wi, w := range x.Workers {
		for step := range 3 {
			data, key := Floats(t, float32(step)), tensor.Key(wi*100+step)
			if wi == 1 && step == 1 {
				data, key = Floats(t, append([]float32{1}, make([]float32, refusedBytes/4-1)...)...), refusedKey
			}
			var keys []tensor.Key
			if x.pulls {
				x.outs[wi][step], keys = List(Floats(t, -1), Floats(t, -1)), Keys(1000, 1001)
			}
			h, err := w.PushPull(List(data), Keys(key), x.outs[wi][step], keys)
			require.NoError(t, err)
			x.handles[wi][step] = h
		}
	}
}

// answer answers r with the step that it pushed.
func (x *rounds) answer(t *testing.T, s *Server, r server.Request) float32 {
	step := Values(t, r.Pushes()[0])[0]
	if x.pulls {
		respond(t, s, r.ID, Floats(t, step))
	} else {
		respond(t, s, r.ID)
	}
	return step
}

// serve answers all requests at s, and checks that they are these steps of worker 0 and worker 1.
func (x *rounds) serve(t *testing.T, s *Server, want ...[]float32) {
	t.Helper()
	got := make([][]float32, 2)
	for len(got[0]) < len(want[0]) || len(got[1]) < len(want[1]) {
		p := stepvan.AnyReady
		if len(got[0]) < len(want[0]) && len(got[1]) < len(want[1]) {
			p = x.policy
		}
		for _, r := range take(t, s, p) {
			got[r.Worker] = append(got[r.Worker], x.answer(t, s, r))
		}
	}
	require.Equal(t, want, got)
	requireNoBatch(t, s, stepvan.AnyReady)
}

// lockStep takes the batches of server 0.
func (x *rounds) lockStep(t *testing.T) {
	s := x.Servers[0]
	for step := range 3 {
		if step != 1 {
			for _, r := range take(t, s, stepvan.DefaultPolicy) {
				require.EqualValues(t, step, x.answer(t, s, r), "worker %d", r.Worker)
			}
			continue
		}
		_, err := s.GetBatch(Context(t), stepvan.DefaultPolicy)
		require.ErrorIs(t, err, stepvan.ErrRefused)
		require.NotErrorIs(t, err, stepvan.ErrInvalid, "it is no mistake of the caller")
		var op *stepvan.OpError
		require.ErrorAs(t, err, &op)
		require.Equal(t, "worker 1", op.Peer)
		require.ErrorContains(t, err, x.refusal.says)
	}
	requireNoBatch(t, s, stepvan.DefaultPolicy)
}

func (x *rounds) check(t *testing.T) {
	for wi := range x.handles {
		for step, h := range x.handles[wi] {
			err := h.Wait(Context(t))
			if step != 1 || wi == 0 && x.policy != stepvan.LockStep {
				require.NoError(t, err, "worker %d, step %d", wi, step)
				for _, out := range x.outs[wi][step] {
					require.Equal(t, []float32{float32(step)}, Values(t, out))
				}
				continue
			}
			require.ErrorIs(t, err, stepvan.ErrRemote)
			require.ErrorContains(t, err, "server 0")
			require.ErrorContains(t, err, x.refusal.says)
			if wi == 0 {
				require.ErrorContains(t, err, "worker 1", "who is to blame")
			}
		}
	}
	for _, w := range x.Workers {
		require.Eventually(t, func() bool { st := w.Stats(); return st.Outstanding == 0 && st.BusyKeys == 0 }, WaitLimit, 1)
	}
	for _, s := range x.Servers {
		require.Zero(t, s.Stats().Unanswered)
	}
}

// A server of another policy takes routed requests in lock-step, too, so one that it refuses has its place.
func TestRefusedRoutedRequestsDoNotShiftBatches(t *testing.T) {
	o := Options{Workers: 2, Worker: worker.Options{Routing: stepvan.ByKey}, Server: server.Options{Policy: stepvan.AnyReady, PoolLimit: 64}}
	c := New(t, o)
	s := c.Servers[0]
	requireNoBatch(t, s, stepvan.LockStep) // there are rounds from here on
	refused, _ := push(t, c.Workers[1], 1, make([]float32, 64)...)
	require.ErrorIs(t, refused.Wait(Context(t)), stepvan.ErrRemote)
	later, _ := push(t, c.Workers[1], 3, 2)
	first, _ := push(t, c.Workers[0], 1, 1)
	second, _ := push(t, c.Workers[0], 3, 2)
	_, err := s.GetBatch(Context(t), stepvan.LockStep)
	require.ErrorIs(t, err, stepvan.ErrRefused)
	require.ErrorIs(t, first.Wait(Context(t)), stepvan.ErrRemote)
	for _, r := range take(t, s, stepvan.LockStep) {
		require.Equal(t, []float32{2}, Values(t, r.Pushes()[0]), "worker %d", r.Worker)
		respond(t, s, r.ID, Floats(t, 0))
	}
	require.NoError(t, later.Wait(Context(t)))
	require.NoError(t, second.Wait(Context(t)))
}

// A worker whose request was refused may leave before its batch is taken.
func TestRefusedRequestOfAWorkerThatHasLeft(t *testing.T) {
	c := New(t, Options{Workers: 2, Server: server.Options{PoolLimit: 64}})
	s := c.Servers[0]
	h, _ := push(t, c.Workers[1], 1, make([]float32, 64)...)
	require.ErrorIs(t, h.Wait(Context(t)), stepvan.ErrRemote)
	require.NoError(t, c.Workers[1].Transport.Close())
	other, _ := push(t, c.Workers[0], 1, 5)
	_, err := s.GetBatch(Context(t), stepvan.LockStep)
	require.ErrorIs(t, err, stepvan.ErrRefused)
	require.ErrorContains(t, err, "worker 1")
	require.ErrorIs(t, other.Wait(Context(t)), stepvan.ErrRemote)
}

// When the server begins to stop, it answers the requests without pulls that were taken.
func TestPushesThatWereTakenAreAnsweredAtTheEnd(t *testing.T) {
	c := New(t, Options{})
	w, s := c.Workers[0], c.Servers[0]
	taken, err := w.PushPull(List(Floats(t, 1)), Keys(1), nil, nil)
	require.NoError(t, err)
	pull, _ := push(t, w, 3, 1)
	queued, err := w.PushPull(List(Floats(t, 1)), Keys(2), nil, nil)
	require.NoError(t, err)
	r := take(t, s, stepvan.DefaultPolicy)
	take(t, s, stepvan.DefaultPolicy)
	awaitRequests(t, s, 3)
	s.AnswerPushes()
	require.NoError(t, taken.Wait(Context(t)))
	require.False(t, pull.Done(), "it wants values")
	require.False(t, queued.Done(), "nobody has taken it")
	require.Equal(t, []float32{1}, Values(t, r[0].Pushes()[0]), "it is the program's still")
	respond(t, s, r[0].ID) // which has no effect, and succeeds
	require.Equal(t, 2, s.Stats().Unanswered)
	_, err = s.Respond(nil, r[0].ID)
	require.ErrorIs(t, err, stepvan.ErrStale)
}

// A server that has begun to stop refuses requests once its program is idle. While the program serves it does not.
func TestServersThatHaveBegunToStop(t *testing.T) {
	c := New(t, Options{})
	w, s := c.Workers[0], c.Servers[0]
	s.BeginStop()
	queued, err := w.PushPull(List(Floats(t, 1)), Keys(1), nil, nil)
	require.NoError(t, err)
	pull, _ := push(t, w, 3, 1)
	for _, h := range []worker.Handle{queued, pull} {
		err = h.Wait(Context(t))
		require.ErrorIs(t, err, stepvan.ErrRemote)
		require.ErrorContains(t, err, "server 0 has stopped")
	}
	late, err := w.PushPull(List(Floats(t, 1)), Keys(1), nil, nil)
	require.NoError(t, err)
	require.ErrorIs(t, late.Wait(Context(t)), stepvan.ErrRemote)
	requireNoBatch(t, s, stepvan.LockStep) // the program serves again
	h, _ := push(t, w, 5, 1)
	respond(t, s, take(t, s, stepvan.LockStep)[0].ID, Floats(t, 2))
	require.NoError(t, h.Wait(Context(t)))
}

// The number of refusals without a GetBatch is limited.
func TestRefusalsOfOneWorkerAreBounded(t *testing.T) {
	c := New(t, Options{Server: server.Options{PoolLimit: 64}})
	w := c.Workers[0]
	var err error
	for i := 0; err == nil || errors.Is(err, stepvan.ErrRemote); i++ {
		require.Less(t, i, 5000)
		var h worker.Handle
		if h, err = w.PushPull(List(Floats(t, make([]float32, 64)...)), Keys(1), nil, nil); err == nil {
			err = h.Wait(Context(t))
		}
	}
	require.ErrorIs(t, err, stepvan.ErrPeerLost)
	require.LessOrEqual(t, c.Servers[0].Stats().Requests, 4100)
}

// Without lock-step a server keeps no entries for refused requests.
func TestRefusalsLeaveNothingWithoutLockStep(t *testing.T) {
	c := New(t, Options{Server: server.Options{PoolLimit: 64, Policy: stepvan.AnyReady}})
	for range 100 {
		h, err := c.Workers[0].PushPull(List(Floats(t, make([]float32, 64)...)), Keys(1), nil, nil)
		require.NoError(t, err)
		require.ErrorIs(t, h.Wait(Context(t)), stepvan.ErrRemote)
	}
	require.LessOrEqual(t, c.Servers[0].Stats().Requests, 2)
}
