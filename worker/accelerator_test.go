package worker_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/device"
	"github.com/stepvan/stepvan/internal/devicetest"
	"github.com/stepvan/stepvan/internal/link"
	. "github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/worker"
)

// pattern is content for tests: n bytes that differ.
func pattern(n int, first byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = first + byte(i%251)
	}
	return b
}

func hostTensor(t testing.TB, b []byte) tensor.Tensor {
	t.Helper()
	x, err := tensor.FromBytes(tensor.Uint8, tensor.ShapeOf(int64(len(b))), b)
	require.NoError(t, err)
	return x
}

// onDevice makes a tensor of device 0 that holds b.
func onDevice(t testing.TB, a *devicetest.Accelerator, b []byte) tensor.Tensor {
	t.Helper()
	return a.Tensor(t, 0, tensor.Uint8, b, int64(len(b)))
}

// stopped waits until the worker has given up everything of the accelerator, which it does after Close.
func stopped(t testing.TB, w *Worker, a *devicetest.Accelerator) {
	t.Helper()
	require.NoError(t, w.Close())
	require.Eventually(t, func() bool { return a.Counts().Streams == 0 && a.Counts().Events == 0 }, 10*time.Second, time.Millisecond)
}

// Tensors of an accelerator travel as others do, small and large, beside tensors of the host.
func TestTensorsOfAnAccelerator(t *testing.T) {
	forVans(t, func(t *testing.T, v Van) {
		for _, n := range []int{1, 300, 70_000, 3 << 20} {
			t.Run(strconv.Itoa(n), func(t *testing.T) {
				a := devicetest.New(t, devicetest.Options{})
				c := New(t, Options{Van: v})
				w, s := c.Workers[0], c.Servers[0]
				push, pull := pattern(n, 1), make([]byte, n)
				own, back := onDevice(t, a, push), onDevice(t, a, pull)
				hostBack := hostTensor(t, make([]byte, 5))
				h, err := w.PushPull(List(own, hostTensor(t, []byte{9})), Keys(1, 2), List(back, hostBack), Keys(3, 4))
				require.NoError(t, err)
				r := batch(t, s)[0]
				require.Equal(t, push, r.Pushes()[0].Bytes())
				require.Equal(t, []byte{9}, r.Pushes()[1].Bytes())
				require.Equal(t, own.Shape(), r.Pushes()[0].Shape())
				answer(t, s, r.ID, hostTensor(t, pattern(n, 7)), hostTensor(t, []byte("hello")))
				require.NoError(t, h.Wait(Context(t)))
				require.Equal(t, pattern(n, 7), a.Content(back))
				require.Equal(t, push, a.Content(own))
				require.Equal(t, "hello", string(hostBack.Bytes()))
				staged := w.Stats().Staged
				require.EqualValues(t, n, staged.BytesOut)
				require.EqualValues(t, n, staged.BytesIn)
				require.NoError(t, own.Region().Close(), "the program has it back")
				stopped(t, w, a)
			})
		}
	})
}

// A push is not copied before the stream of the program has done what was queued to it. What comes behind it departs in
// the order of the calls.
func TestAnExchangeWaitsForItsStream(t *testing.T) {
	a := devicetest.New(t, devicetest.Options{Manual: true, PerCopy: time.Second})
	c := New(t, Options{})
	w, s := c.Workers[0], c.Servers[0]
	stream, err := a.NewStream(a.Device(0))
	require.NoError(t, err)
	push := onDevice(t, a, []byte{1})
	require.NoError(t, a.Work(stream, time.Second, func() { a.Fill(push, 42) }))
	first, err := w.Do(&worker.Exchange{Push: List(push), PushKeys: Keys(1), Stream: stream})
	require.NoError(t, err)
	second, err := w.PushPull(List(hostTensor(t, []byte{7})), Keys(2), nil, nil)
	require.NoError(t, err)

	err = first.WaitFor(20 * time.Millisecond)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "push tensor 0 (key 1): stream 0x1 of ext_dev:0 has not done the work")
	err = second.WaitFor(20 * time.Millisecond)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "behind an exchange that waits for an accelerator")
	require.Zero(t, a.Counts().ToHost)

	a.Advance(time.Second)
	require.Eventually(t, func() bool { return a.Counts().ToHost == 1 }, 10*time.Second, time.Millisecond)
	err = first.WaitFor(20 * time.Millisecond)
	require.ErrorContains(t, err, "ext_dev:0 has not copied it to memory of the host")
	a.Advance(time.Second)
	r := batch(t, s)[0]
	require.Equal(t, []byte{42}, r.Pushes()[0].Bytes())
	answer(t, s, r.ID)
	require.NoError(t, first.Wait(Context(t)))
	r = batch(t, s)[0]
	require.Equal(t, []byte{7}, r.Pushes()[0].Bytes())
	answer(t, s, r.ID)
	require.NoError(t, second.Wait(Context(t)))
}

// WaitOn returns before the copies are over, and the stream waits for them.
func TestAStreamWaitsForThePulls(t *testing.T) {
	a := devicetest.New(t, devicetest.Options{Manual: true, PerCopy: time.Second})
	c := New(t, Options{})
	w, s := c.Workers[0], c.Servers[0]
	stream, err := a.NewStream(a.Device(0))
	require.NoError(t, err)
	pull := onDevice(t, a, []byte{0})
	h, err := w.PushPull(nil, nil, List(pull), Keys(1))
	require.NoError(t, err)
	answer(t, s, batch(t, s)[0].ID, hostTensor(t, []byte{5}))
	require.ErrorIs(t, h.WaitOn(Context(t), device.Stream{Device: tensor.Device{Kind: tensor.DeviceCUDA}}), stepvan.ErrInvalid)
	require.NoError(t, h.WaitOn(Context(t), stream))
	require.False(t, h.Done())
	var seen []byte
	require.NoError(t, a.Work(stream, 0, func() { seen = a.Peek(pull) }))
	err = h.WaitFor(20 * time.Millisecond)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "pull tensor 0 (key 1): ext_dev:0 has not copied the answer")
	require.Nil(t, seen)
	a.Advance(time.Second)
	require.Equal(t, []byte{5}, seen)
	require.NoError(t, h.Wait(Context(t)))
	require.NoError(t, h.WaitOn(Context(t), stream), "again")
}

// The answer of a server lands while others are still awaited. A stream waits for all of them.
func TestAnswersLandOneByOne(t *testing.T) {
	a := devicetest.New(t, devicetest.Options{Manual: true, PerCopy: time.Second})
	c := New(t, Options{Servers: 2})
	w := c.Workers[0]
	stream, err := a.NewStream(a.Device(0))
	require.NoError(t, err)
	first, second := onDevice(t, a, []byte{0}), onDevice(t, a, []byte{0})
	h, err := w.PushPull(nil, nil, List(first, second), Keys(1, 2))
	require.NoError(t, err)
	waited := make(chan error, 1)
	go func() { waited <- h.WaitOn(Context(t), stream) }()
	answer(t, c.Servers[1], batch(t, c.Servers[1])[0].ID, hostTensor(t, []byte{6}))
	require.Eventually(t, func() bool { return a.Counts().FromHost == 1 }, 10*time.Second, time.Millisecond)
	a.Advance(time.Second)
	require.Equal(t, []byte{6}, a.Content(second))
	err = h.WaitFor(20 * time.Millisecond)
	require.ErrorContains(t, err, "server 0")
	require.Empty(t, waited)
	answer(t, c.Servers[0], batch(t, c.Servers[0])[0].ID, hostTensor(t, []byte{5}))
	require.NoError(t, <-waited)
	require.False(t, h.Done())
	a.Advance(time.Second)
	require.NoError(t, h.Wait(Context(t)))
	require.Equal(t, []byte{5}, a.Content(first))
	require.NoError(t, first.Region().Close())
	require.NoError(t, second.Region().Close())
	require.NoError(t, a.CloseStream(stream))
	stopped(t, w, a)
}

// An exchange that fails while an answer lands ends behind the copy: the accelerator uses the memory until then.
func TestAServerIsLostWhileAnotherAnswerLands(t *testing.T) {
	a := devicetest.New(t, devicetest.Options{Manual: true, PerCopy: time.Second})
	c := New(t, Options{Servers: 2})
	w := c.Workers[0]
	first, second := onDevice(t, a, []byte{0}), onDevice(t, a, []byte{0})
	h, err := w.PushPull(nil, nil, List(first, second), Keys(1, 2))
	require.NoError(t, err)
	answer(t, c.Servers[1], batch(t, c.Servers[1])[0].ID, hostTensor(t, []byte{6}))
	require.Eventually(t, func() bool { return a.Counts().FromHost == 1 }, 10*time.Second, time.Millisecond)
	require.NoError(t, c.Servers[0].Transport.Close())
	require.Eventually(t, func() bool {
		return strings.Contains(h.WaitFor(time.Millisecond).Error(), "pull tensor 1 (key 2): ext_dev:0 has not copied the answer")
	}, 10*time.Second, time.Millisecond)
	require.ErrorIs(t, second.Region().Close(), stepvan.ErrBusy)
	a.Advance(time.Second)
	require.ErrorIs(t, h.Wait(Context(t)), stepvan.ErrPeerLost)
	require.NoError(t, first.Region().Close())
	require.NoError(t, second.Region().Close())
	stopped(t, w, a)
}

func TestWaitOnWithoutAnAccelerator(t *testing.T) {
	c := New(t, Options{})
	w, s := c.Workers[0], c.Servers[0]
	h, err := w.PushPull(List(Floats(t, 1)), Keys(1), nil, nil)
	require.NoError(t, err)
	answer(t, s, batch(t, s)[0].ID)
	require.NoError(t, h.WaitOn(Context(t), device.Stream{}))
	require.ErrorIs(t, worker.Handle{}.WaitOn(Context(t), device.Stream{}), stepvan.ErrStale)
}

func TestMistakesWithAccelerators(t *testing.T) {
	a := devicetest.New(t, devicetest.Options{Devices: 2})
	c := New(t, Options{})
	w := c.Workers[0]
	x, y := onDevice(t, a, []byte{1}), a.Tensor(t, 1, tensor.Uint8, []byte{2}, 1)
	at := x.Address()
	asHost, err := tensor.FromPointer(*(*unsafe.Pointer)(unsafe.Pointer(&at)), tensor.Uint8, tensor.ShapeOf(1), nil)
	require.NoError(t, err)
	asOther, err := tensor.FromDevice(a.Device(1), at, tensor.Uint8, tensor.ShapeOf(1), nil)
	require.NoError(t, err)
	host := []byte{1}
	asDevice, err := tensor.FromDevice(a.Device(0), uintptr(unsafe.Pointer(unsafe.SliceData(host))), tensor.Uint8, tensor.ShapeOf(1), nil)
	require.NoError(t, err)
	cuda, err := tensor.FromDevice(tensor.Device{Kind: tensor.DeviceCUDA, ID: 1}, at, tensor.Uint8, tensor.ShapeOf(1), nil)
	require.NoError(t, err)
	foreign, err := a.NewStream(a.Device(1))
	require.NoError(t, err)
	for _, c := range []struct {
		name string
		e    worker.Exchange
		is   error
		want string
	}{
		{"no driver", worker.Exchange{Push: List(cuda)}, stepvan.ErrNotSupported, "push tensor 0 (key 1): it cannot be used: this process has no driver for the device (got cuda"},
		{"device as host", worker.Exchange{Push: List(asHost)}, stepvan.ErrInvalid, "push tensor 0 (key 1): it cannot be used: stepvan: invalid argument: the memory at"},
		{"host as device", worker.Exchange{Pull: List(asDevice)}, stepvan.ErrInvalid, "(got cpu:0, want ext_dev:0)"},
		{"another device", worker.Exchange{Pull: List(asOther)}, stepvan.ErrInvalid, "(got ext_dev:0, want ext_dev:1)"},
		{"two devices", worker.Exchange{Push: List(x), Pull: List(y)}, stepvan.ErrInvalid, "pull tensor 0 (key 2): it cannot be used: stepvan: invalid argument: another accelerator holds other tensors"},
		{"stream of another", worker.Exchange{Push: List(x), Stream: foreign}, stepvan.ErrInvalid, "stream 0x1: it belongs to another device than the tensors (got ext_dev:1, want ext_dev:0)"},
		{"stream for the host", worker.Exchange{Push: List(Floats(t, 1)), Stream: foreign}, stepvan.ErrInvalid, "stream 0x1: it belongs to another device"},
		{"no such stream", worker.Exchange{Push: List(x), Stream: device.Stream{Device: a.Device(0), Handle: 99}}, stepvan.ErrInvalid, "stream 0x63 of ext_dev:0: no event can be recorded"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if len(c.e.Push) > 0 {
				c.e.PushKeys = Keys(1)
			}
			if len(c.e.Pull) > 0 {
				c.e.PullKeys = Keys(2)
			}
			_, err := w.Do(&c.e)
			require.ErrorIs(t, err, c.is)
			require.ErrorContains(t, err, c.want)
		})
	}
	_, err = w.Register(asHost)
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	held, err := w.Register(x)
	require.NoError(t, err)
	require.ErrorIs(t, x.Region().Close(), stepvan.ErrBusy)
	require.NoError(t, held.Close())
	require.Zero(t, w.Stats().Outstanding)
	require.Zero(t, a.Counts().Events)
}

// A device that fails costs the exchange and nothing else: the error names the tensor and the device, and the worker
// works on.
func TestFailuresOfAnAccelerator(t *testing.T) {
	boom := errors.New("boom")
	for _, c := range []struct {
		name  string
		fault devicetest.Faults
		free  bool
		want  string
	}{
		{"queue", devicetest.Faults{Queue: boom}, false, "push tensor 0 (key 1): the copy out of ext_dev:0 has failed: boom"},
		{"copy", devicetest.Faults{Copy: boom}, false, "push tensor 0 (key 1): the copy out of ext_dev:0 has failed: boom"},
		{"gone", devicetest.Faults{Gone: boom}, false, "push tensor 0 (key 1): the work on stream 0x0 of ext_dev:0 before the exchange has failed: boom"},
		{"freed", devicetest.Faults{}, true, "push tensor 0 (key 1): the copy out of ext_dev:0 has failed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := devicetest.New(t, devicetest.Options{Manual: true})
			cluster := New(t, Options{})
			w, s := cluster.Workers[0], cluster.Servers[0]
			require.NoError(t, a.Work(device.Stream{Device: a.Device(0)}, time.Second, func() {}))
			x := onDevice(t, a, []byte{1})
			h, err := w.PushPull(List(x), Keys(1), nil, nil)
			require.NoError(t, err)
			a.Fail(c.fault)
			if c.free {
				a.Free(x.Address())
			}
			a.Advance(time.Second)
			err = h.Wait(Context(t))
			require.ErrorContains(t, err, c.want)
			require.ErrorAs(t, err, new(*stepvan.OpError))
			if c.fault != (devicetest.Faults{}) {
				require.ErrorIs(t, err, boom)
			}
			require.NoError(t, x.Region().Close())

			a.Fail(devicetest.Faults{})
			y := onDevice(t, a, []byte{2})
			h, err = w.PushPull(List(y), Keys(1), nil, nil)
			require.NoError(t, err)
			r := batch(t, s)[0]
			require.Equal(t, []byte{2}, r.Pushes()[0].Bytes())
			answer(t, s, r.ID)
			require.NoError(t, h.Wait(Context(t)))
			stopped(t, w, a)
		})
	}
}

func TestTheCopyOfAnAnswerFails(t *testing.T) {
	boom := errors.New("boom")
	for name, fault := range map[string]devicetest.Faults{"queue": {Queue: boom}, "copy": {Copy: boom}, "gone": {Gone: boom}} {
		t.Run(name, func(t *testing.T) {
			a := devicetest.New(t, devicetest.Options{})
			c := New(t, Options{})
			w, s := c.Workers[0], c.Servers[0]
			pull := onDevice(t, a, []byte{0})
			h, err := w.PushPull(nil, nil, List(pull), Keys(3))
			require.NoError(t, err)
			r := batch(t, s)[0]
			a.Fail(fault)
			answer(t, s, r.ID, hostTensor(t, []byte{1}))
			err = h.Wait(Context(t))
			require.ErrorIs(t, err, boom)
			require.ErrorContains(t, err, "pull tensor 0 (key 3): the copy to ext_dev:0 has failed")
			require.ErrorIs(t, h.WaitOn(Context(t), device.Stream{Device: a.Device(0)}), boom)
			require.NoError(t, pull.Region().Close())
		})
	}
}

// The handle fails although another server has not answered. Its answer is dropped.
func TestTheCopyOfOneAnswerFails(t *testing.T) {
	boom := errors.New("boom")
	a := devicetest.New(t, devicetest.Options{})
	c := New(t, Options{Servers: 2})
	w := c.Workers[0]
	first, second := onDevice(t, a, []byte{0}), onDevice(t, a, []byte{0})
	h, err := w.PushPull(nil, nil, List(first, second), Keys(1, 2))
	require.NoError(t, err)
	r := batch(t, c.Servers[0])[0]
	a.Fail(devicetest.Faults{Copy: boom})
	answer(t, c.Servers[1], batch(t, c.Servers[1])[0].ID, hostTensor(t, []byte{6}))
	err = h.Wait(Context(t))
	require.ErrorIs(t, err, boom)
	require.ErrorContains(t, err, "pull tensor 1 (key 2): the copy to ext_dev:0 has failed")
	a.Fail(devicetest.Faults{})
	answer(t, c.Servers[0], r.ID, hostTensor(t, []byte{5}))
	require.NoError(t, w.Close())
	require.NoError(t, first.Region().Close())
	require.NoError(t, second.Region().Close())
	require.Equal(t, 1, a.Counts().FromHost)
}

// A stream that never ends its work holds nothing up when the worker stops, or loses its server.
func TestAStreamThatNeverEnds(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, c *Cluster){
		"closed": func(t *testing.T, c *Cluster) { require.NoError(t, c.Workers[0].Close()) },
		"failed": func(_ *testing.T, c *Cluster) { c.Workers[0].Fail(stepvan.ErrPeerLost) },
		"lost":   func(t *testing.T, c *Cluster) { require.NoError(t, c.Servers[0].Transport.Close()) },
	} {
		t.Run(name, func(t *testing.T) {
			a := devicetest.New(t, devicetest.Options{})
			c := New(t, Options{})
			a.Fail(devicetest.Faults{Hang: true})
			require.NoError(t, a.Work(device.Stream{Device: a.Device(0)}, 0, func() {}))
			x := onDevice(t, a, []byte{1})
			h, err := c.Workers[0].PushPull(List(x), Keys(1), nil, nil)
			require.NoError(t, err)
			behind, err := c.Workers[0].PushPull(List(Floats(t, 1)), Keys(2), nil, nil)
			require.NoError(t, err)
			require.ErrorIs(t, x.Region().Close(), stepvan.ErrBusy)
			end(t, c)
			require.Error(t, h.Wait(Context(t)))
			require.Error(t, behind.Wait(Context(t)))
			require.NoError(t, x.Region().Close())
			require.Zero(t, a.Counts().ToHost)
		})
	}
}

// Exchanges of accelerators wait for room where others are refused.
func TestAnAcceleratorWaitsForRoom(t *testing.T) {
	a := devicetest.New(t, devicetest.Options{})
	c := New(t, Options{Link: func(o *link.Options) { o.QueueMessages = 1 }})
	w, s := c.Workers[0], c.Servers[0]
	const many = 50
	var handles []worker.Handle
	for i := range many {
		h, err := w.PushPull(List(onDevice(t, a, []byte{byte(i)})), Keys(tensor.Key(i)), nil, nil)
		require.NoError(t, err)
		handles = append(handles, h)
	}
	for i, h := range handles {
		r := batch(t, s)[0]
		require.Equal(t, []byte{byte(i)}, r.Pushes()[0].Bytes(), "in the order of the calls")
		answer(t, s, r.ID)
		require.NoError(t, h.Wait(Context(t)))
	}
	require.Zero(t, w.Stats().Outstanding)
}

func TestVariablePullsOfAnAccelerator(t *testing.T) {
	a := devicetest.New(t, devicetest.Options{})
	c := New(t, Options{})
	w, s := c.Workers[0], c.Servers[0]
	pull := onDevice(t, a, []byte{8, 8, 8})
	h, err := w.Do(&worker.Exchange{Pull: List(pull), PullKeys: Keys(1), Variable: []bool{true}})
	require.NoError(t, err)
	answer(t, s, batch(t, s)[0].ID, hostTensor(t, []byte{1, 2}))
	require.NoError(t, h.Wait(Context(t)))
	n, err := h.PullLen(0)
	require.NoError(t, err)
	require.EqualValues(t, 2, n)
	require.Equal(t, []byte{1, 2, 8}, a.Content(pull))
}
