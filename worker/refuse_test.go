package worker_test

import (
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

type refused struct {
	name string
	req  worker.Exchange
	is   error
	says string
}

// overlapping are exchanges with two servers whose tensors share memory.
func overlapping(t *testing.T) []refused {
	row := Floats(t, make([]float32, 8)...)
	cut := func(from, to int) tensor.Tensor {
		x, err := row.Slice(int64(from), int64(to))
		require.NoError(t, err)
		return x
	}
	one, all := Floats(t, 1), cut(0, 8)
	return []refused{
		{"one tensor for two pulls", worker.Exchange{Pull: List(one, one), PullKeys: Keys(1, 2)}, stepvan.ErrInvalid, "pull tensors 0 (key 1) and 1 (key 2): they share memory"},
		{"for pulls of one server", worker.Exchange{Pull: List(cut(0, 2), cut(1, 3), one, cut(4, 5)), PullKeys: Keys(1, 2, 3, 4)}, stepvan.ErrInvalid, "pull tensors 0 (key 1) and 1 (key 2): they share memory"},
		{"pulls in no order", worker.Exchange{Pull: List(cut(6, 8), cut(0, 3), cut(4, 6), cut(2, 4)), PullKeys: Keys(1, 2, 3, 4)}, stepvan.ErrInvalid, "pull tensors 1 (key 2) and 3 (key 4): they share memory"},
		{"a pull in another", worker.Exchange{Pull: List(cut(3, 4), all), PullKeys: Keys(1, 2)}, stepvan.ErrInvalid, "pull tensors 0 (key 1) and 1 (key 2): they share memory"},
		{"pushed to both, written by one", worker.Exchange{Push: List(one, all), PushKeys: Keys(1, 2), Pull: List(cut(0, 4), Floats(t, 1)), PullKeys: Keys(3, 4)}, stepvan.ErrInvalid, "push tensor 1 (key 2) to server 1: it shares memory with pull tensor 0 (key 3), which server 0 writes"},
		{"pushed to one, written by the other", worker.Exchange{Routing: stepvan.Named, Push: List(all), PushKeys: Keys(2), PushTo: []stepvan.Rank{0}, Pull: List(cut(7, 8)), PullKeys: Keys(3), PullTo: []stepvan.Rank{1}}, stepvan.ErrInvalid, "push tensor 0 (key 2) to server 0: it shares memory with pull tensor 0 (key 3), which server 1 writes"},
	}
}

func TestRequestsThatAreRefused(t *testing.T) {
	c := New(t, Options{Servers: 2, Link: func(o *link.Options) {
		o.Limits = wire.Limits{Meta: 1 << 16, Message: 1 << 10, Tensors: 50}
	}})
	w := c.Workers[0]
	one := Floats(t, 1)
	closed, err := w.Memory.Zeros(tensor.Float32, 1)
	require.NoError(t, err)
	require.NoError(t, closed.Region().Close())
	many := func(n int) (x []tensor.Tensor, k []tensor.Key) {
		for i := range n {
			x, k = append(x, one), append(k, tensor.Key(1000+i))
		}
		return x, k
	}
	tooMany, tooManyKeys := many(51)
	pair, pairKeys := many(40)
	pairKeys[39] = pairKeys[0]
	big := Floats(t, make([]float32, 257)...)

	cases := []refused{
		{"empty", worker.Exchange{}, stepvan.ErrInvalid, "the exchange has no tensors"},
		{"push keys", worker.Exchange{Push: List(one, one), PushKeys: Keys(1)}, stepvan.ErrInvalid, "push keys: wrong number (got 1, want 2)"},
		{"pull keys", worker.Exchange{Pull: List(one), PullKeys: Keys(1, 2)}, stepvan.ErrInvalid, "pull keys: wrong number (got 2, want 1)"},
		{"pulls do not divide", worker.Exchange{Pull: List(one, one, one), PullKeys: Keys(1, 2, 3)}, stepvan.ErrInvalid, "(got 3, want a multiple of 2)"},
		{"push key twice", worker.Exchange{Push: List(one, one), PushKeys: Keys(6, 6)}, stepvan.ErrInvalid, "push key 6: it occurs twice"},
		{"pull key twice", worker.Exchange{Pull: List(one, one, one, one), PullKeys: Keys(1, 2, 5, 5)}, stepvan.ErrInvalid, "pull key 5: it occurs twice"},
		{"key twice among many", worker.Exchange{Push: pair, PushKeys: pairKeys}, stepvan.ErrInvalid, "push key 1000: it occurs twice"},
		{"zero tensor", worker.Exchange{Push: List(tensor.Tensor{}), PushKeys: Keys(1)}, stepvan.ErrInvalid, "push tensor 0 (key 1)"},
		{"closed push region", worker.Exchange{Push: List(one, closed), PushKeys: Keys(1, 9)}, stepvan.ErrClosed, "push tensor 1 (key 9)"},
		{"closed pull region", worker.Exchange{Pull: List(one, closed), PullKeys: Keys(1, 9)}, stepvan.ErrClosed, "pull tensor 1 (key 9)"},
		{"marks", worker.Exchange{Pull: List(one, one), PullKeys: Keys(1, 2), Variable: []bool{true}}, stepvan.ErrInvalid, "marks of variable length: wrong number (got 1, want 0 or 2)"},
		{"tensors", worker.Exchange{Push: tooMany, PushKeys: tooManyKeys}, stepvan.ErrInvalid, "request to server 0: too many tensors (got 51, want at most 50)"},
		{"push bytes", worker.Exchange{Push: List(big), PushKeys: Keys(1)}, stepvan.ErrInvalid, "request to server 0: too many bytes to push (got 1028, want at most 1024)"},
		{"pull bytes", worker.Exchange{Pull: List(one, big), PullKeys: Keys(1, 2)}, stepvan.ErrInvalid, "request to server 1: too many bytes to pull (got 1028, want at most 1024)"},
		{"names with broadcast", worker.Exchange{Push: List(one), PushKeys: Keys(1), PushTo: []stepvan.Rank{0}}, stepvan.ErrInvalid, "(got broadcast, want named)"},
		{"pairs with broadcast", worker.Exchange{Push: List(one), PushKeys: Keys(1), PairWithPush: true}, stepvan.ErrInvalid, "(got broadcast, want key or named)"},
		{"names with by key", worker.Exchange{Routing: stepvan.ByKey, Push: List(one), PushKeys: Keys(1), PushTo: []stepvan.Rank{0}}, stepvan.ErrInvalid, "(got key, want named)"},
		{"unequal pairs", worker.Exchange{Routing: stepvan.ByKey, Push: List(one), PushKeys: Keys(1), Pull: List(one, one), PullKeys: Keys(2, 3), PairWithPush: true}, stepvan.ErrInvalid, "paired with pushes: wrong number (got 2, want 1)"},
		{"names", worker.Exchange{Routing: stepvan.Named, Push: List(one), PushKeys: Keys(1), PushTo: []stepvan.Rank{0, 1}}, stepvan.ErrInvalid, "servers named for the push tensors: wrong number (got 2 for 1 tensors)"},
		{"unknown server", worker.Exchange{Routing: stepvan.Named, Pull: List(one), PullKeys: Keys(1), PullTo: []stepvan.Rank{2}}, stepvan.ErrInvalid, "key 1: this worker is not paired with the server that is named for it (got server 2, want one of 0 1)"},
		{"key twice, two servers", worker.Exchange{Routing: stepvan.Named, Push: List(one, one), PushKeys: Keys(1, 1), PushTo: []stepvan.Rank{0, 1}}, stepvan.ErrInvalid, "push key 1: it occurs twice"},
	}
	cases = append(cases, overlapping(t)...)
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			_, err := w.Do(&tc.req)
			require.ErrorIs(t, err, tc.is)
			require.ErrorContains(t, err, tc.says)
		})
	}
	st := w.Stats()
	require.Zero(t, st.Outstanding)
	require.Zero(t, st.BusyKeys)
	for _, s := range c.Servers {
		require.Zero(t, s.Stats().Requests, "nothing was sent")
	}
}

func TestOutstandingLimit(t *testing.T) {
	c := New(t, Options{Worker: worker.Options{Outstanding: 2}})
	w, s := c.Workers[0], c.Servers[0]
	pull := func() (worker.Handle, error) { return w.PushPull(nil, nil, List(Floats(t, 0)), Keys(1)) }
	first, err := pull()
	require.NoError(t, err)
	second, err := pull()
	require.NoError(t, err)
	_, err = pull()
	require.ErrorIs(t, err, stepvan.ErrWouldBlock)
	answer(t, s, batch(t, s)[0].ID, Floats(t, 1))
	require.NoError(t, first.Wait(Context(t)))
	third, err := pull()
	require.NoError(t, err)
	for _, h := range []worker.Handle{second, third} {
		answer(t, s, batch(t, s)[0].ID, Floats(t, 1))
		require.NoError(t, h.Wait(Context(t)))
	}
}

func TestBroadcastIsAcceptedByAllOrByNone(t *testing.T) {
	c := New(t, Options{
		Servers: 3, Server: server.Options{Policy: stepvan.AnyReady},
		Link: func(o *link.Options) { o.QueueMessages, o.CreditBytes = 1, 64 },
	})
	w := c.Workers[0]
	named := worker.Exchange{Routing: stepvan.Named, Push: List(Floats(t, make([]float32, 100)...)), PushTo: []stepvan.Rank{1}}
	// Server 1 does not release the first two pushes, which take half of its credit each. It has no credit for the
	// third, and no space for a fourth.
	for k := range tensor.Key(3) {
		named.PushKeys = Keys(10 + k)
		_, err := w.Do(&named)
		require.NoError(t, err)
	}
	out := List(Floats(t, 0), Floats(t, 0), Floats(t, 0))
	_, err := w.PushPull(List(Floats(t, 1)), Keys(1), out, Keys(2, 3, 4))
	require.ErrorIs(t, err, stepvan.ErrWouldBlock)
	require.Equal(t, 3, w.Stats().Outstanding)
	require.Equal(t, 3, w.Stats().BusyKeys)
	require.Zero(t, c.Servers[0].Stats().Requests)
	require.Zero(t, c.Servers[2].Stats().Requests)

	for range 3 {
		answer(t, c.Servers[1], batch(t, c.Servers[1])[0].ID)
	}
	h, err := w.PushPull(List(Floats(t, 1)), Keys(1), out, Keys(2, 3, 4))
	require.NoError(t, err)
	for _, s := range c.Servers {
		answer(t, s, batch(t, s)[0].ID, Floats(t, 5))
	}
	require.NoError(t, h.Wait(Context(t)))
}

func TestUseAfterCloseAndBeforeJoin(t *testing.T) {
	c := New(t, Options{})
	w := c.Workers[0]
	x, err := w.Memory.Zeros(tensor.Float32, 1)
	require.NoError(t, err)
	r, err := w.Register(x)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	require.NoError(t, w.Close(), "twice")
	require.NoError(t, x.Region().Close(), "no longer held")
	require.NoError(t, r.Close())
	_, err = w.PushPull(List(Floats(t, 1)), Keys(1), nil, nil)
	require.ErrorIs(t, err, stepvan.ErrClosed)
	require.ErrorContains(t, err, "push_pull: ")
	_, err = w.Register(Floats(t, 1))
	require.ErrorIs(t, err, stepvan.ErrClosed)
	require.ErrorContains(t, err, "register: ")
	require.NotContains(t, err.Error(), "push_pull")

	p := NewPeer(t, Options{Van: Mem()}, "alone", 9)
	alone := worker.New(p.Transport, worker.Options{})
	_, err = alone.PushPull(List(Floats(t, 1)), Keys(1), nil, nil)
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	require.ErrorContains(t, err, "not paired")
	require.ErrorIs(t, alone.Join(0, nil), stepvan.ErrInvalid)
	require.ErrorIs(t, alone.Join(0, []worker.Server{{Rank: 1, Name: "server 1"}}), stepvan.ErrInvalid)
}
