package server_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	. "github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/server"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/worker"
)

// shared makes a tensor that peers of a one-sided van reach. The end of the test closes it.
func shared(t testing.TB, n Instance, fill float32, floats int64) tensor.Tensor {
	t.Helper()
	x, err := n.Memory.Zeros(tensor.Float32, floats)
	require.NoError(t, err)
	v := Values(t, x)
	for i := range v {
		v[i] = fill
	}
	t.Cleanup(func() { Free(t, x) })
	return x
}

func in(t testing.TB, r server.Request, i int) tensor.Tensor {
	t.Helper()
	x, err := r.In(i)
	require.NoError(t, err)
	return x
}

func out(t testing.TB, r server.Request, i int) tensor.Tensor {
	t.Helper()
	x, err := r.Out(i)
	require.NoError(t, err)
	return x
}

const many = 10_000 // floats: more bytes than are sent where they can be read in place

// The same program works over every van. Where memory can be shared, no payload moves.
func TestWorkInPlace(t *testing.T) {
	for _, v := range Vans() {
		t.Run(v.Name, func(t *testing.T) {
			v, seen := Watch(v)
			c := New(t, Options{Workers: 2, Servers: 2, Van: v})
			var handles []worker.Handle
			var pulls [][]tensor.Tensor
			for i, w := range c.Workers {
				push := shared(t, w.Instance, float32(i+1), many)
				pull := List(shared(t, w.Instance, -1, many), shared(t, w.Instance, -1, 3), shared(t, w.Instance, -1, many), shared(t, w.Instance, -1, 3))
				h, err := w.PushPull(List(push), Keys(1), pull, Keys(2, 3, 2, 3))
				require.NoError(t, err)
				handles, pulls = append(handles, h), append(pulls, pull)
			}
			for k, s := range c.Servers {
				for _, r := range take(t, s, stepvan.LockStep) {
					require.Equal(t, v.Shares, r.InPlace(0))
					x, large, small := in(t, r, 0), out(t, r, 0), out(t, r, 1)
					require.Equal(t, large, out(t, r, 0), "the same each time")
					require.Equal(t, tensor.ShapeOf(many), large.Shape())
					a, b, z := Values(t, x), Values(t, large), Values(t, small)
					for i := range a {
						b[i] = a[i] * float32(10*(k+1))
					}
					copy(z, []float32{float32(r.Worker), float32(k), 7})
					respond(t, s, r.ID, large, small)
				}
			}
			for i, h := range handles {
				require.NoError(t, h.Wait(Context(t)))
				for k := range c.Servers {
					got := Values(t, pulls[i][2*k])
					require.Equal(t, float32((i+1)*10*(k+1)), got[0])
					require.Equal(t, float32((i+1)*10*(k+1)), got[many-1])
					require.Equal(t, []float32{float32(i), float32(k), 7}, Values(t, pulls[i][2*k+1]))
				}
			}
			switch {
			case v.Shares:
				require.Zero(t, seen.Messages.Load(), "nothing was to be sent")
			case v.Name == "offload", v.Name == "rdma":
				require.EqualValues(t, 4*4*many, seen.Bytes.Load(), "the pushes alone: the device has written the answers")
			default:
				require.EqualValues(t, 4*4*(2*many+3), seen.Bytes.Load())
			}
		})
	}
}

func TestOnlyWhatIsNotThereIsSent(t *testing.T) {
	v, seen := Watch(OneSided())
	c := New(t, Options{Van: v})
	w, s := c.Workers[0], c.Servers[0]
	buffer := Floats(t, make([]float32, many)...)
	_, err := s.RegisterRecvBuffer(buffer, ranks(0), Keys(1))
	require.NoError(t, err)
	large := func(fill float32) tensor.Tensor { return shared(t, w.Instance, fill, many) }
	heap := Floats(t, make([]float32, many)...)
	for name, c := range map[string]struct {
		push    []tensor.Tensor
		keys    []tensor.Key
		pull    []tensor.Tensor
		own     []bool // answers that are not made in place
		bytes   int64
		written int64
	}{
		"all in place":                   {List(large(1)), Keys(2), List(large(0)), []bool{false}, 0, 0},
		"into the registered chunk":      {List(large(1)), Keys(1), List(large(0)), []bool{false}, 0, 1},
		"chunk and memory of the worker": {List(large(1), large(2)), Keys(1, 2), List(large(0)), []bool{false}, 0, 1},
		"a small push":                   {List(shared(t, w.Instance, 1, 8)), Keys(2), List(large(0)), []bool{false}, 32, 0},
		"a small push and a chunk":       {List(large(1), shared(t, w.Instance, 2, 8)), Keys(1, 2), List(large(0)), []bool{false}, 4*many + 32, 0},
		"a push of the heap":             {List(heap), Keys(2), List(large(0)), []bool{false}, 4 * many, 0},
		"no pulls":                       {List(large(1)), Keys(2), nil, nil, 4 * many, 0},
		"an answer of its own":           {List(large(1)), Keys(2), List(large(0), large(0)), []bool{true, false}, 4 * many, 0},
		"a pull of the heap":             {List(large(1)), Keys(2), List(Floats(t, 0, 0)), []bool{false}, 8, 0},
		"empty tensors":                  {List(Floats(t), large(1)), Keys(1, 2), List(Floats(t), large(0)), []bool{false, false}, 0, 0},
	} {
		bytes, written := seen.Bytes.Load(), seen.Written.Load()
		h, err := w.PushPull(c.push, c.keys, c.pull, Keys(11, 12)[:len(c.pull)])
		require.NoError(t, err, name)
		r := take(t, s, stepvan.DefaultPolicy)[0]
		for i := range c.push {
			require.Equal(t, c.push[i].Bytes(), bytesOf(in(t, r, i)), name)
		}
		var answers []tensor.Tensor
		for i := range c.pull {
			a := out(t, r, i)
			if c.own[i] {
				a = shared(t, s.Instance, 0, int64(a.Len()/4))
			}
			v := Values(t, a)
			for j := range v {
				v[j] = float32(i) + 5
			}
			answers = append(answers, a)
		}
		respond(t, s, r.ID, answers...)
		require.NoError(t, h.Wait(Context(t)), name)
		for i := range c.pull {
			for _, x := range Values(t, c.pull[i]) {
				require.Equal(t, float32(i)+5, x, name)
			}
		}
		require.Equal(t, bytes+c.bytes, seen.Bytes.Load(), name)
		require.Equal(t, written+c.written, seen.Written.Load(), name)
	}
}

func bytesOf(x tensor.Tensor) []byte { return x.Bytes() }

func TestVariableAnswersInPlace(t *testing.T) {
	forVans(t, func(t *testing.T, v Van) {
		c := New(t, Options{Van: v})
		w, s := c.Workers[0], c.Servers[0]
		pull := shared(t, w.Instance, -1, many)
		h, err := w.Do(&worker.Exchange{Pull: List(pull), PullKeys: Keys(1), Variable: []bool{true}})
		require.NoError(t, err)
		r := take(t, s, stepvan.DefaultPolicy)[0]
		x := out(t, r, 0)
		part, err := x.Slice(0, 3)
		require.NoError(t, err)
		copy(Values(t, part), []float32{1, 2, 3})
		respond(t, s, r.ID, part)
		require.NoError(t, h.Wait(Context(t)))
		n, err := h.PullLen(0)
		require.NoError(t, err)
		require.EqualValues(t, 12, n)
		require.Equal(t, []float32{1, 2, 3}, Values(t, pull)[:3])
	})
}

func TestOutAnswersItsOwnPullOnly(t *testing.T) {
	forVans(t, func(t *testing.T, v Van) {
		c := New(t, Options{Van: v})
		w, s := c.Workers[0], c.Servers[0]
		h, err := w.Do(&worker.Exchange{
			Pull: List(shared(t, w.Instance, 0, many), shared(t, w.Instance, 0, many)), PullKeys: Keys(1, 2), Variable: []bool{true, true},
		})
		require.NoError(t, err)
		r := take(t, s, stepvan.DefaultPolicy)[0]
		a, b := out(t, r, 0), out(t, r, 1)
		_, err = r.Out(2)
		require.ErrorIs(t, err, stepvan.ErrInvalid)
		_, err = r.Out(-1)
		require.ErrorIs(t, err, stepvan.ErrInvalid)
		_, err = r.In(0)
		require.ErrorIs(t, err, stepvan.ErrInvalid)
		_, err = s.Respond(List(b, a), r.ID)
		require.ErrorIs(t, err, stepvan.ErrInvalid)
		rest, err := a.Slice(1, many)
		require.NoError(t, err)
		_, err = s.Respond(List(rest, b), r.ID)
		require.ErrorIs(t, err, stepvan.ErrInvalid)
		require.True(t, a.Valid(), "nothing was answered")
		Values(t, a)[0], Values(t, b)[0] = 1, 2
		respond(t, s, r.ID, a, b)
		require.NoError(t, h.Wait(Context(t)))
	})
}

func TestViewsEndWithTheRespond(t *testing.T) {
	forVans(t, func(t *testing.T, v Van) {
		c := New(t, Options{Van: v})
		w, s := c.Workers[0], c.Servers[0]
		var old []tensor.Tensor
		push, pull := shared(t, w.Instance, 1, many), shared(t, w.Instance, 0, many)
		for range 3 {
			h, err := w.PushPull(List(push), Keys(1), List(pull), Keys(2))
			require.NoError(t, err)
			r := take(t, s, stepvan.DefaultPolicy)[0]
			for _, x := range old {
				err := x.Check()
				require.True(t, errors.Is(err, stepvan.ErrStale) || errors.Is(err, stepvan.ErrClosed), "%v", err)
				require.Nil(t, x.Bytes())
			}
			old = append(old, in(t, r, 0), out(t, r, 0))
			respond(t, s, r.ID, out(t, r, 0))
			_, err = r.In(0)
			require.ErrorIs(t, err, stepvan.ErrStale)
			_, err = r.Out(0)
			require.ErrorIs(t, err, stepvan.ErrStale)
			require.NoError(t, h.Wait(Context(t)))
		}
	})
}

// A program that retains a tensor keeps it beyond the respond, until it releases the tensor.
func TestViewsThatAreHeld(t *testing.T) {
	c := New(t, Options{Van: OneSided()})
	w, s := c.Workers[0], c.Servers[0]
	push, pull := shared(t, w.Instance, 1, many), shared(t, w.Instance, 0, many)
	h, err := w.PushPull(List(push), Keys(1), List(pull), Keys(2))
	require.NoError(t, err)
	r := take(t, s, stepvan.DefaultPolicy)[0]
	x, y := in(t, r, 0), out(t, r, 0)
	require.NoError(t, x.Retain())
	require.NoError(t, y.Retain())
	back, err := s.Respond(List(y), r.ID)
	require.NoError(t, err)
	require.NoError(t, h.Wait(Context(t)))
	require.NoError(t, back.Wait(Context(t)))
	require.Equal(t, float32(1), Values(t, x)[0])
	require.NotNil(t, y.Bytes())
	x.Release()
	y.Release()
	require.Nil(t, x.Bytes())
	require.Nil(t, y.Bytes())
}

// A push may be the answer. The server retains it until the worker has the answer.
func TestPushesAsAnswers(t *testing.T) {
	forVans(t, func(t *testing.T, v Van) {
		c := New(t, Options{Van: v})
		w, s := c.Workers[0], c.Servers[0]
		push, pull := shared(t, w.Instance, 0, many), shared(t, w.Instance, 0, many)
		for i := range 5 {
			Values(t, push)[many-1] = float32(i)
			h, err := w.PushPull(List(push), Keys(1), List(pull), Keys(2))
			require.NoError(t, err)
			r := take(t, s, stepvan.DefaultPolicy)[0]
			back, err := s.Respond(List(in(t, r, 0)), r.ID)
			require.NoError(t, err)
			require.NoError(t, h.Wait(Context(t)))
			require.Equal(t, float32(i), Values(t, pull)[many-1])
			require.NoError(t, back.Wait(Context(t)))
		}
	})
}

// The program may write to what Pushes returns. The worker's tensor does not change.
func TestPushesAreTheServersOwn(t *testing.T) {
	forVans(t, func(t *testing.T, v Van) {
		for name, limit := range map[string]int64{"pooled": 0, "without room in the pool": 64 << 10} {
			t.Run(name, func(t *testing.T) {
				memory, err := tensor.NewAllocator(tensor.Options{Name: "pool", MaxBytes: limit, MaxBytesSetting: "room"})
				require.NoError(t, err)
				if limit > 0 && !v.Shares {
					return // there the push needs room before anybody asks
				}
				c := New(t, Options{Van: v, Server: server.Options{Memory: memory}})
				t.Cleanup(func() { require.NoError(t, memory.Close()) })
				w, s := c.Workers[0], c.Servers[0]
				push, other, pull := shared(t, w.Instance, 3, many), shared(t, w.Instance, 4, many), shared(t, w.Instance, 0, many)
				for range 3 {
					h, err := w.PushPull(List(push, Floats(t), other), Keys(1, 5, 6), List(pull), Keys(2))
					require.NoError(t, err)
					r := take(t, s, stepvan.DefaultPolicy)[0]
					mine := r.Pushes()
					require.Equal(t, mine, r.Pushes(), "the same each time")
					require.Equal(t, float32(4), Values(t, mine[2])[many-1])
					for i := range Values(t, mine[0]) {
						Values(t, mine[0])[i] *= 2
					}
					if v.Shares {
						require.Equal(t, float32(3), Values(t, in(t, r, 0))[many-1])
					}
					require.Equal(t, []bool{false, v.Shares, false, v.Shares, false}, inPlace(r, -1, 0, 1, 2, 3))
					respond(t, s, r.ID, mine[0])
					require.Equal(t, []bool{false}, inPlace(r, 0), "it was answered")
					require.NoError(t, h.Wait(Context(t)))
					require.Equal(t, float32(6), Values(t, pull)[many-1])
					require.Equal(t, float32(3), Values(t, push)[many-1])
				}
			})
		}
	})
}

func inPlace(r server.Request, pushes ...int) []bool {
	var all []bool
	for _, i := range pushes {
		all = append(all, r.InPlace(i))
	}
	return all
}

// Where a pull shares memory with a push, the server must not write into what it reads.
func TestPushesThatArePulledIntoAreCopied(t *testing.T) {
	forVans(t, func(t *testing.T, v Van) {
		c := New(t, Options{Van: v})
		w, s := c.Workers[0], c.Servers[0]
		x := shared(t, w.Instance, 3, many)
		tail, err := x.Slice(many/2, many)
		require.NoError(t, err)
		h, err := w.PushPull(List(x), Keys(1), List(tail), Keys(2))
		require.NoError(t, err)
		r := take(t, s, stepvan.DefaultPolicy)[0]
		clear(bytesOf(out(t, r, 0)))
		require.Equal(t, float32(3), Values(t, in(t, r, 0))[many-1])
		respond(t, s, r.ID, out(t, r, 0))
		require.NoError(t, h.Wait(Context(t)))
		require.Zero(t, Values(t, x)[many-1])
		require.Equal(t, float32(3), Values(t, x)[0])
	})
}

func TestRespondVecInPlace(t *testing.T) {
	forVans(t, func(t *testing.T, v Van) {
		c := New(t, Options{Van: v})
		w, s := c.Workers[0], c.Servers[0]
		pull := shared(t, w.Instance, 0, many)
		h, err := w.PushPull(nil, nil, List(pull), Keys(2))
		require.NoError(t, err)
		r := take(t, s, stepvan.DefaultPolicy)[0]
		ret := out(t, r, 0)
		Values(t, ret)[9] = 9
		_, err = s.RespondVec(ret, List(ret), []server.RequestID{r.ID})
		require.NoError(t, err)
		require.NoError(t, h.Wait(Context(t)))
		require.Equal(t, float32(9), Values(t, pull)[9])
	})
}
