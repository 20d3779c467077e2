package server_test

import (
	"context"
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
	"github.com/stepvan/stepvan/worker"
)

// writer is a peer over a one-sided van that acts as worker 0.
type writer struct {
	*Peer
	t       *testing.T
	c       *Cluster
	s       *Server
	session *link.Session
	van     Van
}

func newWriter(t *testing.T) *writer { return newWriterOf(t, server.Options{Policy: stepvan.AnyReady}) }

func newWriterOf(t *testing.T, o server.Options) *writer {
	return newWriterOver(t, WithFaults(OneSided()), o)
}

func newWriterOver(t *testing.T, v Van, o server.Options) *writer {
	c := New(t, Options{Workers: 2, Van: v, Server: o})
	w := &writer{Peer: c.Replace(t, Options{Van: v}, "raw"), t: t, c: c, s: c.Servers[0], van: v}
	w.session = w.Dial(t, w.s)
	return w
}

// connect dials the server with a new peer in place of the last one.
func (w *writer) connect() {
	w.Peer = NewPeer(w.t, Options{Van: w.van}, "raw again", 100_000)
	w.session = w.Dial(w.t, w.s)
}

// announcement takes the next announcement. It drops answers to pushes that come before.
func (w *writer) announcement(op uint8) (list []wire.Descriptor, generation uint32) {
	w.t.Helper()
	m := w.Take(w.t)
	for m.Header.Channel == link.ChannelResponse {
		m.Release()
		m = w.Take(w.t)
	}
	defer m.Release()
	require.Equal(w.t, link.ChannelRegister, m.Header.Channel)
	require.Equal(w.t, op, m.Header.Op)
	var a wire.Announcement
	require.NoError(w.t, a.Decode(&m.Header, m.Meta))
	return a.Keys, m.Header.Generation
}

// write pushes one float into the announced chunk. edit may change the descriptor.
func (w *writer) write(id uint64, to wire.Descriptor, x float32, edit func(*wire.Descriptor)) {
	w.t.Helper()
	d := float(to.Key)
	d.Region, d.Generation = to.Region, to.Generation
	if edit != nil {
		edit(&d)
	}
	one := Floats(w.t, x)
	require.NoError(w.t, w.session.Send(&link.Outbound{
		Channel: link.ChannelRequest, Op: wire.OpRequest, Request: id,
		Pushes: 1, Meta: d.Append(nil), Payload: [][]byte{one.Bytes()}, Targets: []link.Target{link.TargetOf(&to)},
	}))
}

func (w *writer) fence(generation uint32) {
	w.t.Helper()
	require.NoError(w.t, w.session.Send(&link.Outbound{Channel: link.ChannelRequest, Op: wire.OpFence, Generation: generation}))
}

// start runs fn on a goroutine, and returns the channel of its result.
func start(fn func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- fn() }()
	return done
}

func TestWorkersWriteTheirPushesThemselves(t *testing.T) {
	v, seen := Watch(OneSided())
	c := New(t, Options{Workers: 2, Servers: 2, Van: v})
	var buffers []tensor.Tensor
	for _, s := range c.Servers {
		b := Floats(t, make([]float32, 8)...)
		buffers = append(buffers, b)
		_, err := s.RegisterRecvBuffer(b, ranks(0, 0, 1, 1), Keys(1, 2, 1, 2))
		require.NoError(t, err)
	}
	for round := range 3 {
		x := float32(round * 100)
		var handles []worker.Handle
		for i, w := range c.Workers {
			h, err := w.PushPull(List(Floats(t, x+float32(i), 5), Floats(t, x+9), Floats(t)), Keys(1, 2, 7), List(Floats(t), Floats(t)), Keys(8, 8))
			require.NoError(t, err)
			handles = append(handles, h)
		}
		for i, s := range c.Servers {
			for rank, r := range take(t, s, stepvan.LockStep) {
				require.True(t, isPartOf(r.Pushes()[0], buffers[i]))
				require.Equal(t, []float32{x + float32(rank), 5}, Values(t, r.Pushes()[0]))
				require.Equal(t, []float32{x + 9}, Values(t, r.Pushes()[1]))
				respond(t, s, r.ID, Floats(t))
			}
		}
		for _, h := range handles {
			require.NoError(t, h.Wait(Context(t)))
		}
	}
	require.EqualValues(t, 3*2*2, seen.Written.Load())
	require.Zero(t, seen.Bytes.Load())
	h, err := c.Workers[0].PushPull(List(Floats(t, 1), Floats(t, 2)), Keys(1, 7), nil, nil)
	require.NoError(t, err)
	for _, s := range c.Servers {
		respond(t, s, take(t, s, stepvan.AnyReady)[0].ID)
	}
	require.NoError(t, h.Wait(Context(t)))
	require.EqualValues(t, 12, seen.Written.Load(), "where one push has no buffer, all are sent")
	require.EqualValues(t, 2*8, seen.Bytes.Load())
}

func TestUnregisterWaitsForTheFence(t *testing.T) {
	w := newWriter(t)
	buffer := Floats(t, 1, 2)
	reg, err := w.s.RegisterRecvBuffer(buffer, ranks(0, 0), Keys(1, 2))
	require.NoError(t, err)
	announced, _ := w.announcement(wire.OpAnnounce)
	require.Len(t, announced, 2)
	for _, p := range announced {
		require.NotZero(t, p.Region)
		require.Equal(t, reg.Generation(), p.Generation)
		require.EqualValues(t, 4, p.Bytes)
	}
	ended := start(reg.Unregister)
	_, generation := w.announcement(wire.OpWithdraw)
	w.fence(generation - 1) // of another one
	for i, p := range announced {
		w.write(uint64(i), p, float32(p.Key)+10, nil) // it was under way
		r := take(t, w.s, stepvan.AnyReady)[0]
		require.Equal(t, []float32{float32(p.Key) + 10}, Values(t, r.Pushes()[0]))
		require.False(t, isPartOf(r.Pushes()[0], buffer), "the buffer has ended")
		respond(t, w.s, r.ID)
	}
	require.Empty(t, ended, "the worker may still write")
	w.fence(generation)
	require.NoError(t, <-ended)
	require.Equal(t, []float32{11, 12}, Values(t, buffer))
	w.write(9, announced[0], 99, nil) // the van refuses it, and it is sent
	r := take(t, w.s, stepvan.AnyReady)[0]
	require.Equal(t, []float32{99}, Values(t, r.Pushes()[0]))
	require.Equal(t, []float32{11, 12}, Values(t, buffer))
	respond(t, w.s, r.ID)
}

func TestReplacingWaitsForTheFence(t *testing.T) {
	w := newWriter(t)
	first, err := w.s.Memory.Zeros(tensor.Float32, 1)
	require.NoError(t, err)
	_, err = w.s.RegisterRecvBuffer(first, ranks(0), Keys(1))
	require.NoError(t, err)
	w.announcement(wire.OpAnnounce)
	second := Floats(t, 0)
	replaced := start(func() error {
		_, err := w.s.RegisterRecvBuffer(second, ranks(0), Keys(1))
		return err
	})
	_, generation := w.announcement(wire.OpWithdraw)
	announced, _ := w.announcement(wire.OpAnnounce) // is in other memory, so it need not wait
	w.write(1, announced[0], 7, nil)
	r := take(t, w.s, stepvan.AnyReady)[0]
	require.True(t, isPartOf(r.Pushes()[0], second))
	respond(t, w.s, r.ID)
	require.Empty(t, replaced)
	require.ErrorIs(t, first.Region().Close(), stepvan.ErrBusy)
	w.fence(generation)
	require.NoError(t, <-replaced)
	require.NoError(t, first.Region().Close())
}

func TestUnregisterEndsWithTheWorker(t *testing.T) {
	w := newWriter(t)
	buffer, err := w.s.Memory.Zeros(tensor.Float32, 1)
	require.NoError(t, err)
	reg, err := w.s.RegisterRecvBuffer(buffer, ranks(0), Keys(1))
	require.NoError(t, err)
	w.announcement(wire.OpAnnounce)
	ended := start(reg.Unregister)
	w.announcement(wire.OpWithdraw)
	require.Empty(t, ended)
	require.ErrorIs(t, buffer.Region().Close(), stepvan.ErrBusy)
	require.True(t, w.c.Net.Kill("raw"))
	require.NoError(t, <-ended)
	require.NoError(t, buffer.Region().Close())
}

// A lost worker whose process lives may keep its mappings. Until it releases them its buffer stays reserved.
func TestMemoryThatALostWorkerReaches(t *testing.T) {
	w := newWriter(t)
	buffer := Floats(t, 1)
	first, err := w.s.RegisterRecvBuffer(buffer, ranks(0), Keys(1))
	require.NoError(t, err)
	announced, _ := w.announcement(wire.OpAnnounce)
	view, err := w.session.Map(link.TargetOf(&announced[0]), 4, link.RightWrite)
	require.NoError(t, err)
	require.Positive(t, w.c.Net.Cut("raw", "server 0"))
	require.Error(t, w.Loss(t))
	_, err = w.s.GetBatch(Context(t), stepvan.LockStep)
	requireGone(t, err, "worker 0")
	ended := start(first.Unregister)
	for first.Live() {
		runtime.Gosched()
	}
	w.connect()
	require.Empty(t, ended)
	again := start(func() error {
		_, err := w.s.RegisterRecvBuffer(buffer, ranks(0), Keys(1))
		return err
	})
	d := float(1)
	four := Floats(t, 4)
	require.NoError(t, w.session.Send(&link.Outbound{
		Channel: link.ChannelRequest, Op: wire.OpRequest, Request: 1, Pushes: 1, Meta: d.Append(nil), Payload: [][]byte{four.Bytes()},
	}))
	r := take(t, w.s, stepvan.AnyReady)[0]
	require.False(t, isPartOf(r.Pushes()[0], buffer), "somebody else may write there")
	respond(t, w.s, r.ID)
	w.Take(t).Release()
	require.Empty(t, again)
	view.Release()
	require.NoError(t, <-ended)
	require.NoError(t, <-again)
	renewed, _ := w.announcement(wire.OpAnnounce)
	w.write(2, renewed[0], 5, nil)
	r = take(t, w.s, stepvan.AnyReady)[0]
	require.True(t, isPartOf(r.Pushes()[0], buffer))
	respond(t, w.s, r.ID)
}

// Two workers swap their chunks of one buffer. Late writes of either must not reach the chunk of the other.
func TestChunksThatChangeHandsWaitForEachOther(t *testing.T) {
	w := newWriter(t)
	buffer := Floats(t, 1, 2)
	_, err := w.s.RegisterRecvBuffer(buffer, ranks(0, 1), Keys(1, 1))
	require.NoError(t, err)
	announced, _ := w.announcement(wire.OpAnnounce)
	ended := start(func() error {
		_, err := w.s.RegisterRecvBuffer(buffer, ranks(1, 0), Keys(1, 1))
		return err
	})
	_, generation := w.announcement(wire.OpWithdraw)
	h, err := w.c.Workers[1].PushPull(List(Floats(t, 7)), Keys(1), nil, nil)
	require.NoError(t, err)
	w.write(1, announced[0], 8, nil)
	got := take(t, w.s, stepvan.AnyReady)
	for len(got) < 2 {
		got = append(got, take(t, w.s, stepvan.AnyReady)...)
	}
	for _, r := range got {
		require.Equal(t, []float32{8 - float32(r.Worker)}, Values(t, r.Pushes()[0]))
		require.False(t, isPartOf(r.Pushes()[0], buffer))
		respond(t, w.s, r.ID)
	}
	require.NoError(t, h.Wait(Context(t)))
	require.Empty(t, ended)
	w.fence(generation)
	announced, _ = w.announcement(wire.OpAnnounce)
	require.NoError(t, <-ended)
	w.write(2, announced[0], 9, nil)
	r := take(t, w.s, stepvan.AnyReady)[0]
	require.True(t, isPartOf(r.Pushes()[0], buffer))
	require.Equal(t, []float32{9}, Values(t, r.Pushes()[0]))
	respond(t, w.s, r.ID)
}

func TestHostileWrites(t *testing.T) {
	for name, edit := range map[string]func(*wire.Descriptor){
		"another grant":       func(d *wire.Descriptor) { d.Region++ },
		"no grant":            func(d *wire.Descriptor) { d.Region = 0 },
		"another generation":  func(d *wire.Descriptor) { d.Generation++ },
		"an offset":           func(d *wire.Descriptor) { d.Offset = 4 },
		"another key":         func(d *wire.Descriptor) { d.Key = 2 },
		"a key without place": func(d *wire.Descriptor) { d.Key = 77 },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWriter(t)
			_, err := w.s.RegisterRecvBuffer(Floats(t, 1, 2), ranks(0, 0), Keys(1, 2))
			require.NoError(t, err)
			announced, _ := w.announcement(wire.OpAnnounce)
			if announced[0].Key != 1 {
				announced[0], announced[1] = announced[1], announced[0]
			}
			w.write(1, announced[0], 5, edit)
			require.Error(t, w.Loss(t))
			require.Zero(t, w.s.Stats().Unanswered)
			h, _ := push(t, w.c.Workers[1], 1, 5)
			respond(t, w.s, take(t, w.s, stepvan.AnyReady)[0].ID, Floats(t, 6))
			require.NoError(t, h.Wait(Context(t)), "a bad peer costs its own connection only")
		})
	}
}

func TestWritesThatAreRefused(t *testing.T) {
	w := newWriter(t)
	_, err := w.s.RegisterRecvBuffer(Floats(t, 1), ranks(0), Keys(1))
	require.NoError(t, err)
	announced, _ := w.announcement(wire.OpAnnounce)
	refused := func(id uint64, says string) {
		t.Helper()
		m := w.Take(t)
		defer m.Release()
		require.EqualValues(t, id, m.Header.Request)
		require.NotZero(t, m.Header.Flags&wire.FlagError)
		require.Contains(t, string(m.Meta), says)
	}
	w.write(1, announced[0], 5, nil)
	w.write(2, announced[0], 6, nil)
	refused(2, "before the last one was answered")
	r := take(t, w.s, stepvan.AnyReady)[0]
	respond(t, w.s, r.ID)
	w.Take(t).Release()
	require.NoError(t, w.s.Close())
	w.write(3, announced[0], 5, nil)
	_, generation := w.announcement(wire.OpWithdraw)
	w.fence(generation)
	refused(3, "stopped")
}

func TestBrokenFencesCostTheSession(t *testing.T) {
	w := newWriter(t)
	require.NoError(t, w.session.Send(&link.Outbound{Channel: link.ChannelRequest, Op: wire.OpFence, Pulls: 1}))
	require.Error(t, w.Loss(t))
}

// The server registers and unregisters buffers while several workers write into them. No push is lost or mixed up.
// After Unregister has returned, no byte of the buffer changes.
func TestRegistrationsUnderWrites(t *testing.T) {
	const workers, rounds = 3, 60
	c := New(t, Options{Workers: workers, Van: OneSided(), Server: server.Options{Policy: stepvan.AnyReady}})
	s := c.Servers[0]
	var done, registrar sync.WaitGroup
	stop := make(chan struct{})
	registrar.Go(func() { registrations(t, s, stop) })
	for i, w := range c.Workers {
		done.Go(func() {
			for round := range rounds {
				x := make([]float32, 1000)
				for j := range x {
					x[j] = float32(i*rounds + round)
				}
				h, out := push(t, w, 1, x...)
				if err := h.Wait(Context(t)); err != nil {
					t.Error(err)
					return
				}
				if got := Values(t, out)[0]; got != x[0] {
					t.Errorf("worker %d pushed %v and got %v", i, x[0], got)
				}
			}
		})
	}
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		for n := 0; n < workers*rounds; {
			b, err := s.GetBatch(Context(t), stepvan.AnyReady)
			if err != nil {
				t.Error(err)
				return
			}
			for _, r := range b.Requests {
				v, err := tensor.As[float32](r.Pushes()[0])
				if err == nil && (v[0] != v[999] || v[0] != v[500]) {
					t.Errorf("a push is mixed up: %v %v %v", v[0], v[500], v[999])
				}
				if _, err := s.Respond(List(Floats(t, v[0])), r.ID); err != nil {
					t.Error(err)
				}
				n++
			}
		}
	}()
	done.Wait()
	<-answered
	close(stop)
	registrar.Wait()
}

// registrations registers one buffer after the other for the workers.
func registrations(t *testing.T, s *Server, stop chan struct{}) {
	buffer := Floats(t, make([]float32, 3000)...)
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		default:
		}
		reg, err := s.RegisterRecvBuffer(buffer, ranks(stepvan.Rank(i%3), stepvan.Rank((i+1)%3), stepvan.Rank((i+2)%3)), Keys(1, 1, 1))
		if isBusy(err) {
			continue
		}
		if err != nil {
			t.Error(err)
			return
		}
		for err = stepvan.ErrBusy; isBusy(err) && i%2 == 0; {
			err = reg.Unregister()
		}
		if i%2 == 0 && err == nil {
			clear(buffer.Bytes())
			for _, x := range buffer.Bytes() {
				if x != 0 {
					t.Error("a push was written into a buffer that has ended")
				}
			}
		}
	}
}

// A worker that connects again gets its chunk only when its former process reaches it no more.
func TestAWorkerThatComesBackWaitsForItsFormerLife(t *testing.T) {
	w := newWriter(t)
	buffer := Floats(t, 1)
	_, err := w.s.RegisterRecvBuffer(buffer, ranks(0), Keys(1))
	require.NoError(t, err)
	announced, _ := w.announcement(wire.OpAnnounce)
	view, err := w.session.Map(link.TargetOf(&announced[0]), 4, link.RightWrite)
	require.NoError(t, err)
	require.Positive(t, w.c.Net.Cut("raw", "server 0"))
	require.Error(t, w.Loss(t))
	_, err = w.s.GetBatch(Context(t), stepvan.LockStep)
	requireGone(t, err, "worker 0")
	w.connect()
	d := float(1)
	two := Floats(t, 2)
	require.NoError(t, w.session.Send(&link.Outbound{
		Channel: link.ChannelRequest, Op: wire.OpRequest, Request: 1, Pushes: 1, Meta: d.Append(nil), Payload: [][]byte{two.Bytes()},
	}))
	r := take(t, w.s, stepvan.AnyReady)[0]
	require.False(t, isPartOf(r.Pushes()[0], buffer))
	respond(t, w.s, r.ID)
	m := w.Take(t)
	require.Equal(t, link.ChannelResponse, m.Header.Channel, "nothing was announced before")
	m.Release()
	view.Release()
	announced, _ = w.announcement(wire.OpAnnounce)
	w.write(2, announced[0], 3, nil)
	r = take(t, w.s, stepvan.AnyReady)[0]
	require.True(t, isPartOf(r.Pushes()[0], buffer))
	respond(t, w.s, r.ID)
}

// The server stops, or is lost, while workers write into its chunks and it works in their memory. All requests end,
// with an error or without, and no memory leaks.
func TestTheEndUnderWrites(t *testing.T) {
	for name, end := range map[string]func(*Cluster){
		"the server is closed": func(c *Cluster) { _ = c.Servers[0].Close() },
		"its node is closed":   func(c *Cluster) { _ = c.Servers[0].Close(); _ = c.Servers[0].Transport.Close() },
		"its node only":        func(c *Cluster) { _ = c.Servers[0].Transport.Close() },
		"a worker is closed":   func(c *Cluster) { _ = c.Workers[0].Transport.Close() },
		"a worker fails":       func(c *Cluster) { c.Workers[0].Fail(stepvan.ErrPeerLost) },
	} {
		t.Run(name, func(t *testing.T) {
			forVans(t, func(t *testing.T, v Van) {
				c := New(t, Options{Workers: 2, Van: v, Server: server.Options{Policy: stepvan.AnyReady}})
				s := c.Servers[0]
				buffer := shared(t, s.Instance, 0, 2*many)
				_, err := s.RegisterRecvBuffer(buffer, ranks(0, 1), Keys(1, 1))
				require.NoError(t, err)
				var all sync.WaitGroup
				begun := make(chan struct{}, 1000)
				for _, w := range c.Workers {
					x, y, z := shared(t, w.Instance, 1, many), shared(t, w.Instance, 2, many), shared(t, w.Instance, 0, many)
					all.Go(func() {
						for range 500 {
							h, err := w.PushPull(List(x, y), Keys(1, 2), List(z), Keys(3))
							if err != nil || h.WaitFor(WaitLimit) != nil {
								return
							}
							begun <- struct{}{}
						}
					})
				}
				ctx, stop := context.WithCancel(Context(t))
				all.Go(func() { serveInPlace(ctx, s) })
				<-begun
				end(c)
				if name == "a worker is closed" || name == "a worker fails" {
					_ = c.Servers[0].Close()
				}
				stop()
				for _, w := range c.Workers {
					_ = w.Transport.Close() // ends what the server does not answer
				}
				all.Wait()
				_ = s.Close()
			})
		})
	}
}

// serveInPlace answers requests until the server is closed.
func serveInPlace(ctx context.Context, s *Server) {
	for {
		b, err := s.GetBatch(ctx, stepvan.AnyReady)
		if err != nil {
			return
		}
		for _, r := range b.Requests {
			x, err := r.Out(0)
			if err == nil {
				clear(x.Bytes())
				_, err = s.Respond([]tensor.Tensor{x}, r.ID)
			}
			if err != nil { // closed meanwhile
				_, _ = s.Respond(nil, r.ID)
			}
		}
	}
}

// Chunks without a grant get one for each grant that is free again.
func TestChunksAreGrantedWhenGrantsAreFree(t *testing.T) {
	w := newWriterOver(t, FewGrants(2), server.Options{Policy: stepvan.AnyReady})
	register := func(k tensor.Key) *server.ReceiveBuffer {
		t.Helper()
		reg, err := w.s.RegisterRecvBuffer(Floats(t, 0), ranks(0), Keys(k))
		require.NoError(t, err)
		return reg
	}
	var regs []*server.ReceiveBuffer
	for k := range tensor.Key(5) {
		regs = append(regs, register(k))
		announced, _ := w.announcement(wire.OpAnnounce)
		require.Equal(t, k < 2, announced[0].Region != 0, "key %d", k)
	}
	gone := func(i int) {
		t.Helper()
		ended := start(regs[i].Unregister)
		_, generation := w.announcement(wire.OpWithdraw)
		w.fence(generation)
		require.NoError(t, <-ended)
	}
	gone(2) // has none to give back, and is not lent one any more
	lent := map[tensor.Key]bool{}
	for i := range 2 {
		gone(i)
		announced, generation := w.announcement(wire.OpAnnounce)
		require.Len(t, announced, 1)
		require.NotZero(t, announced[0].Region)
		require.GreaterOrEqual(t, generation, regs[4].Generation())
		lent[announced[0].Key] = true
		w.write(uint64(i), announced[0], 7, nil)
		r := take(t, w.s, stepvan.AnyReady)[0]
		reg := regs[announced[0].Key]
		require.True(t, isPartOf(r.Pushes()[0], reg.Tensor()))
		require.Equal(t, []float32{7}, Values(t, reg.Tensor()))
		respond(t, w.s, r.ID)
		w.Take(t).Release()
	}
	require.Equal(t, map[tensor.Key]bool{3: true, 4: true}, lent)
}
