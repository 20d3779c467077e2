package server_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	. "github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/server"
	"github.com/stepvan/stepvan/tensor"
)

// isPartOf reports whether x is memory of buffer.
func isPartOf(x, buffer tensor.Tensor) bool {
	b, all := x.Bytes(), buffer.Bytes()
	for i := range all {
		if &all[i] == &b[0] {
			return true
		}
	}
	return false
}

func TestPushesLandInTheirChunks(t *testing.T) {
	forVans(t, func(t *testing.T, v Van) {
		c := New(t, Options{Workers: 2, Van: v})
		s := c.Servers[0]
		region, err := s.Memory.Zeros(tensor.Float32, 4, 3)
		require.NoError(t, err)
		for name, buffer := range map[string]tensor.Tensor{"region": region, "heap": Floats(t, make([]float32, 12)...)} {
			reg, err := s.RegisterRecvBuffer(buffer, ranks(1, 0, 0, 1), Keys(1, 1, 3, 3))
			require.NoError(t, err)
			push(t, c.Workers[0], 1, 1, 2, 3)
			push(t, c.Workers[1], 1, 4, 5) // smaller than the chunk
			reqs := take(t, s, stepvan.LockStep)
			require.Equal(t, []float32{4, 5, 0, 1, 2, 3, 0, 0, 0, 0, 0, 0}, Values(t, buffer), name)
			require.Equal(t, tensor.ShapeOf(2), reqs[1].Pushes()[0].Shape())
			for _, r := range reqs {
				require.True(t, isPartOf(r.Pushes()[0], buffer))
				respond(t, s, r.ID, Floats(t, 0))
			}
			require.Equal(t, buffer, reg.Tensor())
			require.NoError(t, reg.Unregister())
			clear(buffer.Bytes())
		}
		require.NoError(t, region.Region().Close())
	})
}

func TestRegistrationsThatAreRefused(t *testing.T) {
	c := New(t, Options{Workers: 2})
	s := c.Servers[0]
	live := Floats(t, make([]float32, 8)...)
	_, err := s.RegisterRecvBuffer(live, ranks(0, 1), Keys(100, 100))
	require.NoError(t, err)
	half, err := live.Slice(3, 5)
	require.NoError(t, err)
	closed, err := s.Memory.Zeros(tensor.Float32, 4)
	require.NoError(t, err)
	require.NoError(t, closed.Region().Close())
	odd, err := tensor.FromSlice(make([]float32, 3))
	require.NoError(t, err)
	data := Floats(t, 1, 2, 3, 4)
	cases := []struct {
		name  string
		x     tensor.Tensor
		ranks []stepvan.Rank
		keys  []tensor.Key
		is    error
		says  string
	}{
		{"lists of unequal length", data, ranks(0), Keys(1, 2), stepvan.ErrInvalid, "got 1 ranks, want 2"},
		{"no keys", data, nil, nil, stepvan.ErrInvalid, "0 keys"},
		{"no bytes", Floats(t), ranks(0), Keys(1), stepvan.ErrInvalid, "0 bytes"},
		{"does not divide", data, ranks(0, 0, 0), Keys(1, 2, 3), stepvan.ErrInvalid, "16 bytes do not divide by 3"},
		{"not aligned", odd, ranks(0, 0), Keys(1, 2), stepvan.ErrInvalid, "multiples of the 4 bytes that float32 needs"},
		{"unknown rank", data, ranks(2), Keys(1), stepvan.ErrInvalid, "not paired with worker 2"},
		{"twice in one", data, ranks(1, 1), Keys(1, 1), stepvan.ErrInvalid, "key 1 of worker 1 occurs twice"},
		{"overlap", half, ranks(0), Keys(5), stepvan.ErrInvalid, "overlaps that of key 100"},
		{"zero tensor", tensor.Tensor{}, ranks(0), Keys(1), stepvan.ErrInvalid, "cannot be used"},
		{"closed", closed, ranks(0), Keys(1), stepvan.ErrClosed, "cannot be used"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			_, err := s.RegisterRecvBuffer(tc.x, tc.ranks, tc.keys)
			require.ErrorIs(t, err, tc.is)
			require.ErrorContains(t, err, tc.says)
		})
	}
	require.Equal(t, 2, s.Stats().Chunks, "nothing has changed")
}

func TestReplacing(t *testing.T) {
	forVans(t, func(t *testing.T, v Van) {
		c := New(t, Options{Van: v})
		w, s := c.Workers[0], c.Servers[0]
		first, err := s.Memory.Zeros(tensor.Float32, 2)
		require.NoError(t, err)
		old, err := s.RegisterRecvBuffer(first, ranks(0, 0), Keys(1, 3))
		require.NoError(t, err)
		second := Floats(t, 0)
		push(t, w, 1, 7)
		req := take(t, s, stepvan.DefaultPolicy)[0]
		_, err = s.RegisterRecvBuffer(second, ranks(0), Keys(1))
		require.ErrorIs(t, err, stepvan.ErrBusy)
		require.ErrorContains(t, err, "key 1")
		require.ErrorContains(t, err, "worker 0")
		require.ErrorIs(t, old.Unregister(), stepvan.ErrBusy)
		respond(t, s, req.ID, Floats(t, 0))

		replacement, err := s.RegisterRecvBuffer(second, ranks(0), Keys(1))
		require.NoError(t, err)
		require.Greater(t, replacement.Generation(), old.Generation())
		push(t, w, 1, 8)
		req = take(t, s, stepvan.DefaultPolicy)[0]
		require.Equal(t, []float32{8}, Values(t, second))
		require.Equal(t, []float32{7, 0}, Values(t, first))
		respond(t, s, req.ID, Floats(t, 0))

		require.True(t, old.Live(), "key 3")
		require.ErrorIs(t, first.Region().Close(), stepvan.ErrBusy, "the registration keeps it alive")
		third := Floats(t, 0)
		_, err = s.RegisterRecvBuffer(third, ranks(0), Keys(3))
		require.NoError(t, err)
		require.False(t, old.Live(), "all of it is replaced")
		require.NoError(t, first.Region().Close())
		require.NoError(t, old.Unregister())

		same, err := s.RegisterRecvBuffer(third, ranks(0), Keys(3))
		require.NoError(t, err, "the same memory for the same key")
		require.True(t, same.Live())
	})
}

func TestUnregister(t *testing.T) {
	forVans(t, func(t *testing.T, v Van) {
		c := New(t, Options{Van: v})
		w, s := c.Workers[0], c.Servers[0]
		buffer := Floats(t, 0)
		reg, err := s.RegisterRecvBuffer(buffer, ranks(0), Keys(1))
		require.NoError(t, err)
		require.NoError(t, reg.Unregister())
		require.NoError(t, reg.Unregister(), "twice")
		require.False(t, reg.Live())
		push(t, w, 1, 9)
		req := take(t, s, stepvan.DefaultPolicy)[0]
		require.Equal(t, []float32{9}, Values(t, req.Pushes()[0]))
		require.Equal(t, []float32{0}, Values(t, buffer))
		respond(t, s, req.ID, Floats(t, 0))
	})
}

func TestPushLargerThanItsChunk(t *testing.T) {
	forVans(t, func(t *testing.T, v Van) {
		c := New(t, Options{Van: v})
		w, s := c.Workers[0], c.Servers[0]
		buffer := Floats(t, 0, 0, 0, 0)
		_, err := s.RegisterRecvBuffer(buffer, ranks(0, 0), Keys(1, 3))
		require.NoError(t, err)
		h, _ := push(t, w, 1, 1, 2, 3)
		err = h.Wait(Context(t))
		require.ErrorIs(t, err, stepvan.ErrRemote)
		require.ErrorContains(t, err, "server 0")
		require.ErrorContains(t, err, "push of key 1: it is larger than the buffer registered for it and worker 0 (got 12 bytes, want at most 8)")
		require.Equal(t, []float32{0, 0, 0, 0}, Values(t, buffer))
		requireNoBatch(t, s, stepvan.AnyReady)
		h, _ = push(t, w, 1, 1, 2)
		respond(t, s, take(t, s, stepvan.DefaultPolicy)[0].ID, Floats(t, 5))
		require.NoError(t, h.Wait(Context(t)), "nothing else is disturbed")
	})
}

func TestPushOfAnotherTypeMustBeAligned(t *testing.T) {
	c := New(t, Options{})
	w, s := c.Workers[0], c.Servers[0]
	buffer := Floats(t, make([]float32, 5)...) // begins at a multiple of 4, chunk 1 too
	bytes, err := buffer.Slice(1, 5)
	require.NoError(t, err)
	_, err = s.RegisterRecvBuffer(bytes, ranks(0, 0), Keys(1, 2))
	require.NoError(t, err)
	x, err := tensor.FromSlice([]float64{1})
	require.NoError(t, err)
	var failures int
	for _, k := range Keys(1, 2) {
		h, err := w.PushPull(List(x), Keys(k), nil, nil)
		require.NoError(t, err)
		g, err := w.PushPull(nil, nil, List(Floats(t, 0)), Keys(9)) // behind it
		require.NoError(t, err)
		reqs := take(t, s, stepvan.AnyReady)
		if len(reqs[0].Pushes()) == 0 {
			failures++
		} else {
			respond(t, s, reqs[0].ID)
			reqs = take(t, s, stepvan.AnyReady)
		}
		respond(t, s, reqs[0].ID, Floats(t, 0))
		require.NoError(t, g.Wait(Context(t)))
		_ = h.Wait(Context(t)) // complete with the delivery, or refused
	}
	require.Contains(t, []int{0, 2}, failures, "both chunks are aligned alike: refused or not by the address")
}

func TestRequestPreparedUnderAnOlderGenerationLandsInPooledMemory(t *testing.T) {
	v := Mem()
	c := New(t, Options{Van: v, Server: server.Options{Policy: stepvan.AnyReady}})
	s := c.Servers[0]
	raw := c.Replace(t, Options{Van: v}, "raw") // in place of worker 0
	session := raw.Dial(t, s)
	buffer := Floats(t, 0)
	reg, err := s.RegisterRecvBuffer(buffer, ranks(0), Keys(1))
	require.NoError(t, err)
	m := raw.Take(t)
	require.Equal(t, link.ChannelRegister, m.Header.Channel)
	require.Equal(t, reg.Generation(), m.Header.Generation)
	m.Release()
	d := wire.Descriptor{Key: 1, Bytes: 4, DType: tensor.Float32, Shape: tensor.ShapeOf(1)}
	four := Floats(t, 4)
	for g := range reg.Generation() + 1 {
		require.NoError(t, session.Send(&link.Outbound{
			Channel: link.ChannelRequest, Op: wire.OpRequest, Request: 1, Generation: g,
			Pushes: 1, Meta: d.Append(nil), Payload: [][]byte{four.Bytes()},
		}))
		req := take(t, s, stepvan.DefaultPolicy)[0]
		require.Equal(t, []float32{4}, Values(t, req.Pushes()[0]))
		require.Equal(t, g == reg.Generation(), isPartOf(req.Pushes()[0], buffer))
		respond(t, s, req.ID)
	}
}

func TestAWorkerThatComesLaterIsToldOfItsBuffers(t *testing.T) {
	v := Mem()
	c := New(t, Options{Van: v})
	s := c.Servers[0]
	require.NoError(t, c.Workers[0].Transport.Close())
	_, err := s.GetBatch(Context(t), stepvan.DefaultPolicy)
	require.ErrorIs(t, err, stepvan.ErrClosed)
	buffer := Floats(t, make([]float32, 3000)...)
	var r []stepvan.Rank
	var k []tensor.Key
	for i := range 3000 { // more than one announcement holds
		r, k = append(r, 0), append(k, tensor.Key(i))
	}
	reg, err := s.RegisterRecvBuffer(buffer, r, k)
	require.NoError(t, err)
	raw := NewPeer(t, Options{Van: v}, "raw", 100_000)
	raw.Dial(t, s)
	seen := map[tensor.Key]bool{}
	var generations []uint32
	for range 3 {
		m := raw.Take(t)
		var a wire.Announcement
		require.NoError(t, a.Decode(&m.Header, m.Meta))
		for _, d := range a.Keys {
			seen[d.Key] = true
		}
		generations = append(generations, m.Header.Generation)
		m.Release()
	}
	require.Len(t, seen, 3000)
	require.Equal(t, []uint32{0, 0, reg.Generation()}, generations, "only the last says that all are known")
}

func TestRegistrationsUnderTraffic(t *testing.T) {
	forVans(t, func(t *testing.T, v Van) {
		c := New(t, Options{Van: v})
		w, s := c.Workers[0], c.Servers[0]
		done := make(chan error, 1)
		go func() {
			for i := range 100 {
				buffer, err := tensor.FromSlice(make([]float32, 1))
				if err == nil {
					var reg *server.ReceiveBuffer
					reg, err = s.RegisterRecvBuffer(buffer, ranks(0), Keys(1))
					for err == nil && i%2 == 0 {
						if err = reg.Unregister(); err == nil {
							break
						}
						if isBusy(err) {
							err = nil
						}
					}
				}
				if err != nil && !isBusy(err) {
					done <- err
					return
				}
			}
			done <- nil
		}()
		for i, ended := 0, false; !ended; i++ {
			h, out := push(t, w, 1, float32(i))
			req := take(t, s, stepvan.DefaultPolicy)[0]
			require.Equal(t, []float32{float32(i)}, Values(t, req.Pushes()[0]))
			respond(t, s, req.ID, Floats(t, float32(i)))
			require.NoError(t, h.Wait(Context(t)))
			require.Equal(t, []float32{float32(i)}, Values(t, out))
			select {
			case err := <-done:
				require.NoError(t, err)
				ended = true
			default:
			}
		}
	})
}
