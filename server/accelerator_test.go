package server_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/device"
	"github.com/stepvan/stepvan/internal/devicetest"
	"github.com/stepvan/stepvan/internal/link"
	. "github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/server"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/worker"
)

// Every operation refuses memory of an accelerator without a driver, names the tensor, and changes nothing. It does not
// read the address, which no process has.
func TestMemoryOfAnUnknownAcceleratorIsRefused(t *testing.T) {
	forVans(t, func(t *testing.T, v Van) {
		c := New(t, Options{Van: v})
		w, s := c.Workers[0], c.Servers[0]
		gpu := func(dims ...int64) tensor.Tensor {
			x, err := tensor.FromDevice(tensor.Device{Kind: tensor.DeviceCUDA, ID: 1}, 1<<60, tensor.Float32, tensor.ShapeOf(dims...), nil)
			require.NoError(t, err)
			return x
		}
		refused := func(err error, names string) {
			t.Helper()
			require.ErrorIs(t, err, stepvan.ErrNotSupported)
			require.ErrorContains(t, err, names)
			require.ErrorContains(t, err, "got cuda, want one of cpu")
		}

		host := Floats(t, 1)
		_, err := w.PushPull(List(host, gpu(1)), Keys(1, 2), nil, nil)
		refused(err, "push_pull: push tensor 1 (key 2)")
		_, err = w.Do(&worker.Exchange{Pull: List(gpu(1)), PullKeys: Keys(7)})
		refused(err, "push_pull: pull tensor 0 (key 7)")
		_, err = w.Register(gpu(1))
		refused(err, "register: the tensor")
		_, err = s.Register(gpu(1))
		refused(err, "register: the tensor")
		_, err = s.RegisterRecvBuffer(gpu(2), []stepvan.Rank{0}, Keys(1))
		refused(err, "register_recv_buffer: the tensor")

		h, pull := push(t, w, 1, 2)
		r := take(t, s, stepvan.LockStep)[0]
		_, err = s.Respond(List(gpu(1)), r.ID)
		refused(err, "respond: the tensor for the pull of key 2")
		_, _, err = s.RespondCopy(List(gpu(1)), r.ID)
		refused(err, "respond: the tensor for the pull of key 2")
		_, err = s.RespondVec(gpu(1, 1), List(host), []server.RequestID{r.ID})
		refused(err, "respond_vec: ret_buffer")
		respond(t, s, r.ID, Floats(t, 3))
		require.NoError(t, h.Wait(Context(t)))
		require.Equal(t, []float32{3}, Values(t, pull))
	})
}

func pattern(n int, first byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = first + byte(i%251)
	}
	return b
}

func hostBytes(t testing.TB, b []byte) tensor.Tensor {
	t.Helper()
	x, err := tensor.FromBytes(tensor.Uint8, tensor.ShapeOf(int64(len(b))), b)
	require.NoError(t, err)
	return x
}

func onDevice(t testing.TB, a *devicetest.Accelerator, b []byte) tensor.Tensor {
	t.Helper()
	return a.Tensor(t, 0, tensor.Uint8, b, int64(len(b)))
}

// An answer of an accelerator comes as any other, of every size.
func TestAnswersOfAnAccelerator(t *testing.T) {
	forVans(t, func(t *testing.T, v Van) {
		for _, n := range []int{1, 300, 70_000, 3 << 20} {
			t.Run(strconv.Itoa(n), func(t *testing.T) {
				a := devicetest.New(t, devicetest.Options{})
				c := New(t, Options{Van: v})
				w, s := c.Workers[0], c.Servers[0]
				pull, small := hostBytes(t, make([]byte, n)), hostBytes(t, make([]byte, 1))
				h, err := w.PushPull(nil, nil, List(pull, small), Keys(1, 2))
				require.NoError(t, err)
				r := take(t, s, stepvan.LockStep)[0]
				own := onDevice(t, a, pattern(n, 5))
				resp, err := s.Respond(List(own, hostBytes(t, []byte{7})), r.ID)
				require.NoError(t, err)
				require.NoError(t, resp.Wait(Context(t)))
				require.NoError(t, h.Wait(Context(t)))
				require.Equal(t, pattern(n, 5), pull.Bytes())
				require.Equal(t, []byte{7}, small.Bytes())
				require.NoError(t, own.Region().Close())
				require.EqualValues(t, n, s.Stats().Staged.BytesOut)
				_, err = s.Respond(List(own, own), r.ID)
				require.ErrorIs(t, err, stepvan.ErrStale)
				require.NoError(t, s.Close())
				require.Eventually(t, func() bool { return a.Counts() == devicetest.Counts{ToHost: 1} }, 10*time.Second, time.Millisecond)
			})
		}
	})
}

func TestRowsOfAnAccelerator(t *testing.T) {
	a := devicetest.New(t, devicetest.Options{})
	c := New(t, Options{Workers: 2})
	s := c.Servers[0]
	var handles []worker.Handle
	var pulls []tensor.Tensor
	for i, w := range c.Workers {
		pull := hostBytes(t, make([]byte, 2*(i+1)))
		h, err := w.PushPull(nil, nil, List(pull), Keys(1))
		require.NoError(t, err)
		handles, pulls = append(handles, h), append(pulls, pull)
	}
	var like []tensor.Tensor
	var ids []server.RequestID
	for i, r := range take(t, s, stepvan.LockStep) {
		like, ids = append(like, hostBytes(t, make([]byte, i+1))), append(ids, r.ID)
	}
	rows := a.Tensor(t, 0, tensor.Uint8, []byte{1, 2, 3, 4, 5, 6}, 3, 2)
	resp, err := s.RespondVecOn(device.Stream{}, rows, like, ids)
	require.NoError(t, err)
	require.NoError(t, resp.Wait(Context(t)))
	for _, h := range handles {
		require.NoError(t, h.Wait(Context(t)))
	}
	require.Equal(t, []byte{1, 2}, pulls[0].Bytes())
	require.Equal(t, []byte{3, 4, 5, 6}, pulls[1].Bytes())
}

// RespondCopy of an accelerator borrows the tensors: the caller waits for the response before it writes to them.
func TestRespondCopyOfAnAcceleratorBorrows(t *testing.T) {
	a := devicetest.New(t, devicetest.Options{})
	c := New(t, Options{})
	w, s := c.Workers[0], c.Servers[0]
	pull := hostBytes(t, make([]byte, 1))
	h, err := w.PushPull(nil, nil, List(pull), Keys(1))
	require.NoError(t, err)
	resp, borrowed, err := s.RespondCopy(List(onDevice(t, a, []byte{9})), take(t, s, stepvan.LockStep)[0].ID)
	require.NoError(t, err)
	require.True(t, borrowed)
	require.NoError(t, resp.Wait(Context(t)))
	require.NoError(t, h.Wait(Context(t)))
	require.Equal(t, []byte{9}, pull.Bytes())
}

// An answer waits for the stream of the program. Its request belongs to the answer meanwhile.
func TestAnAnswerWaitsForItsStream(t *testing.T) {
	a := devicetest.New(t, devicetest.Options{Manual: true, Devices: 2, PerCopy: time.Second})
	c := New(t, Options{})
	w, s := c.Workers[0], c.Servers[0]
	stream, err := a.NewStream(a.Device(0))
	require.NoError(t, err)
	pull := hostBytes(t, make([]byte, 1))
	h, err := w.PushPull(nil, nil, List(pull), Keys(1))
	require.NoError(t, err)
	r := take(t, s, stepvan.LockStep)[0]
	own := onDevice(t, a, []byte{1})
	require.NoError(t, a.Work(stream, time.Second, func() { a.Fill(own, 42) }))

	_, err = s.RespondOn(device.Stream{Device: a.Device(1), Handle: stream.Handle}, List(own), r.ID)
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	require.ErrorContains(t, err, "respond: stream 0x1: it belongs to another device than the tensors (got ext_dev:1, want ext_dev:0)")
	_, err = s.RespondOn(device.Stream{Handle: 77}, List(own), r.ID)
	require.ErrorContains(t, err, "respond: stream 0x4d of ext_dev:0: no event can be recorded")

	_, err = s.RespondOn(stream, List(hostBytes(t, []byte{1})), r.ID)
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	require.ErrorContains(t, err, "stream 0x1: it belongs to ext_dev:0, and memory of the host holds the tensors")

	resp, err := s.RespondOn(stream, List(own), r.ID)
	require.NoError(t, err)
	_, err = s.Respond(List(hostBytes(t, []byte{1})), r.ID)
	require.ErrorIs(t, err, stepvan.ErrStale)
	err = resp.WaitFor(20 * time.Millisecond)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "tensor 0: stream 0x1 of ext_dev:0 has not done the work")
	require.ErrorIs(t, own.Region().Close(), stepvan.ErrBusy)
	a.Advance(time.Second)
	require.Eventually(t, func() bool { return a.Counts().ToHost == 1 }, 10*time.Second, time.Millisecond)
	require.ErrorContains(t, resp.WaitFor(20*time.Millisecond), "tensor 0: it is copied out of ext_dev:0")
	a.Advance(time.Second)
	require.NoError(t, h.Wait(Context(t)))
	require.NoError(t, resp.Wait(Context(t)))
	require.Equal(t, []byte{42}, pull.Bytes())
}

// When the device fails, the response says so, and so does the handle of the worker.
func TestTheCopyOfAnAnswerFails(t *testing.T) {
	boom := errors.New("boom")
	for name, fault := range map[string]devicetest.Faults{"queue": {Queue: boom}, "copy": {Copy: boom}, "gone": {Gone: boom}} {
		t.Run(name, func(t *testing.T) {
			a := devicetest.New(t, devicetest.Options{Manual: true})
			c := New(t, Options{})
			w, s := c.Workers[0], c.Servers[0]
			pull := hostBytes(t, make([]byte, 1))
			h, err := w.PushPull(nil, nil, List(pull), Keys(1))
			require.NoError(t, err)
			r := take(t, s, stepvan.LockStep)[0]
			own := onDevice(t, a, []byte{1})
			require.NoError(t, a.Work(device.Stream{Device: a.Device(0)}, time.Second, func() {}))
			resp, err := s.Respond(List(own), r.ID)
			require.NoError(t, err)
			a.Fail(fault)
			a.Advance(time.Second)
			err = resp.Wait(Context(t))
			require.ErrorIs(t, err, boom)
			require.ErrorContains(t, err, "tensor 0: the ")
			require.ErrorAs(t, err, new(*stepvan.OpError))
			require.NoError(t, own.Region().Close())
			err = h.Wait(Context(t))
			require.ErrorIs(t, err, stepvan.ErrRemote)
			require.ErrorContains(t, err, "tensor 0: the ")
			_, err = s.Respond(List(hostBytes(t, []byte{3})), r.ID)
			require.ErrorIs(t, err, stepvan.ErrStale)
			require.Zero(t, s.Stats().Unanswered)
		})
	}
}

func TestAnswersOfAnAcceleratorWaitForRoom(t *testing.T) {
	a := devicetest.New(t, devicetest.Options{})
	c := New(t, Options{Link: func(o *link.Options) { o.QueueMessages = 1 }})
	w, s := c.Workers[0], c.Servers[0]
	const many = 20
	var handles []worker.Handle
	var pulls []tensor.Tensor
	for i := range many {
		pull := hostBytes(t, make([]byte, 1))
		h, err := w.PushPull(List(onDevice(t, a, []byte{1})), Keys(tensor.Key(i)), List(pull), Keys(1))
		require.NoError(t, err)
		handles, pulls = append(handles, h), append(pulls, pull)
	}
	var responses []server.Response
	for i := range many {
		resp, err := s.Respond(List(onDevice(t, a, []byte{byte(i)})), take(t, s, stepvan.LockStep)[0].ID)
		require.NoError(t, err)
		responses = append(responses, resp)
	}
	for i, h := range handles {
		require.NoError(t, responses[i].Wait(Context(t)))
		require.NoError(t, h.Wait(Context(t)))
		require.Equal(t, []byte{byte(i)}, pulls[i].Bytes())
	}
}

func TestAServerStopsWhileAnAnswerWaits(t *testing.T) {
	a := devicetest.New(t, devicetest.Options{})
	c := New(t, Options{})
	w, s := c.Workers[0], c.Servers[0]
	_, err := w.PushPull(List(Floats(t, 1)), Keys(1), List(hostBytes(t, make([]byte, 1))), Keys(1))
	require.NoError(t, err)
	r := take(t, s, stepvan.LockStep)[0]
	a.Fail(devicetest.Faults{Hang: true})
	require.NoError(t, a.Work(device.Stream{Device: a.Device(0)}, 0, func() {}))
	own := onDevice(t, a, []byte{1})
	resp, err := s.Respond(List(own), r.ID)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.ErrorIs(t, resp.Wait(Context(t)), stepvan.ErrClosed)
	require.NoError(t, own.Region().Close())
	require.Zero(t, s.Stats().Unanswered)
}

// A receive buffer of an accelerator receives pushes. GetBatch hands out its parts, and the pushes are there.
func TestAReceiveBufferOfAnAccelerator(t *testing.T) {
	forVans(t, func(t *testing.T, v Van) {
		for _, n := range []int{1, 70_000} {
			t.Run(strconv.Itoa(n), func(t *testing.T) {
				a := devicetest.New(t, devicetest.Options{PerCopy: time.Millisecond})
				c := New(t, Options{Van: v})
				w, s := c.Workers[0], c.Servers[0]
				buffer := onDevice(t, a, make([]byte, 2*n))
				b, err := s.RegisterRecvBuffer(buffer, []stepvan.Rank{0, 0}, Keys(1, 2))
				require.NoError(t, err)
				require.Equal(t, buffer.Address(), func() uintptr { x := b.Tensor(); return x.Address() }())
				for round := range byte(3) {
					one, two := pattern(n, round), pattern(n, round+9)
					h, err := w.PushPull(List(hostBytes(t, one), hostBytes(t, two), hostBytes(t, []byte{round})), Keys(1, 2, 3), nil, nil)
					require.NoError(t, err)
					behind, err := w.PushPull(List(hostBytes(t, []byte{99})), Keys(4), nil, nil)
					require.NoError(t, err)
					r := take(t, s, stepvan.LockStep)[0]
					pushes := r.Pushes()
					require.Equal(t, a.Device(0), pushes[0].Device())
					require.Equal(t, buffer.Address()+uintptr(n), pushes[1].Address())
					require.Equal(t, one, a.Content(pushes[0]))
					require.Equal(t, two, a.Content(pushes[1]))
					require.Equal(t, []byte{round}, pushes[2].Bytes())
					in, err := r.In(0)
					require.NoError(t, err)
					require.Equal(t, buffer.Address(), in.Address())
					require.ErrorIs(t, b.Unregister(), stepvan.ErrBusy)
					respond(t, s, r.ID)
					require.NoError(t, h.Wait(Context(t)))
					next := take(t, s, stepvan.LockStep)[0]
					require.Equal(t, Keys(4), next.PushKeys(), "in the order of the calls")
					respond(t, s, next.ID)
					require.NoError(t, behind.Wait(Context(t)))
				}
				require.NoError(t, b.Unregister())
				require.NoError(t, buffer.Region().Close())
				require.NoError(t, s.Close())
				require.Eventually(t, func() bool { return a.Counts().Streams == 0 }, 10*time.Second, time.Millisecond)
			})
		}
	})
}

// A push that cannot be copied to its accelerator is refused, and its batch fails.
func TestAPushDoesNotReachItsAccelerator(t *testing.T) {
	a := devicetest.New(t, devicetest.Options{})
	boom := errors.New("boom")
	c := New(t, Options{})
	w, s := c.Workers[0], c.Servers[0]
	_, err := s.RegisterRecvBuffer(onDevice(t, a, make([]byte, 4)), []stepvan.Rank{0}, Keys(1))
	require.NoError(t, err)
	a.Fail(devicetest.Faults{Copy: boom})
	h, err := w.PushPull(List(hostBytes(t, []byte{1})), Keys(1), nil, nil)
	require.NoError(t, err)
	_, err = s.GetBatch(Context(t), stepvan.LockStep)
	require.ErrorIs(t, err, stepvan.ErrRefused)
	require.ErrorContains(t, err, "server 0: push of key 1: the copy to ext_dev:0 has failed: boom")
	require.ErrorIs(t, h.Wait(Context(t)), stepvan.ErrRemote)
	a.Fail(devicetest.Faults{})
	h, err = w.PushPull(List(hostBytes(t, []byte{2})), Keys(1), nil, nil)
	require.NoError(t, err)
	r := take(t, s, stepvan.LockStep)[0]
	require.Equal(t, []byte{2}, a.Content(r.Pushes()[0]))
	respond(t, s, r.ID)
	require.NoError(t, h.Wait(Context(t)))
}

func TestReceiveBuffersThatAreNotWhatTheySay(t *testing.T) {
	a := devicetest.New(t, devicetest.Options{Devices: 2})
	c := New(t, Options{})
	s := c.Servers[0]
	buffer := onDevice(t, a, make([]byte, 8))
	at := buffer.Address()
	asHost, err := tensor.FromPointer(*(*unsafe.Pointer)(unsafe.Pointer(&at)), tensor.Uint8, tensor.ShapeOf(8), nil)
	require.NoError(t, err)
	asOther, err := tensor.FromDevice(a.Device(1), at, tensor.Uint8, tensor.ShapeOf(8), nil)
	require.NoError(t, err)
	for want, x := range map[string]tensor.Tensor{"got ext_dev:0, want cpu": asHost, "got ext_dev:0, want ext_dev:1": asOther} {
		_, err = s.RegisterRecvBuffer(x, []stepvan.Rank{0}, Keys(1))
		require.ErrorIs(t, err, stepvan.ErrInvalid)
		require.ErrorContains(t, err, want)
	}
	b, err := s.RegisterRecvBuffer(buffer, []stepvan.Rank{0}, Keys(1))
	require.NoError(t, err)
	half, err := buffer.Slice(4, 8)
	require.NoError(t, err)
	_, err = s.RegisterRecvBuffer(half, []stepvan.Rank{0}, Keys(2))
	require.ErrorContains(t, err, "the memory overlaps that of key 1")
	require.ErrorIs(t, buffer.Region().Close(), stepvan.ErrBusy)
	require.NoError(t, b.Unregister())
	require.NoError(t, buffer.Region().Close())
	a.Fail(devicetest.Faults{Gone: errors.New("boom")})
	_, err = s.RegisterRecvBuffer(half, []stepvan.Rank{0}, Keys(2))
	require.Error(t, err)
}

// A server that stops while pushes are copied gives everything back when the copies are over.
func TestAServerStopsWhileAPushIsCopied(t *testing.T) {
	a := devicetest.New(t, devicetest.Options{Manual: true, PerCopy: time.Second})
	c := New(t, Options{})
	w, s := c.Workers[0], c.Servers[0]
	buffer := onDevice(t, a, make([]byte, 1))
	_, err := s.RegisterRecvBuffer(buffer, []stepvan.Rank{0}, Keys(1))
	require.NoError(t, err)
	_, err = w.PushPull(List(hostBytes(t, []byte{1})), Keys(1), nil, nil)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return a.Counts().FromHost == 1 }, 10*time.Second, time.Millisecond)
	require.NoError(t, s.Close())
	require.ErrorIs(t, buffer.Region().Close(), stepvan.ErrBusy)
	a.Advance(time.Second)
	require.Eventually(t, func() bool { return a.Counts().Streams == 0 && buffer.Region().Close() == nil }, 10*time.Second, time.Millisecond)
	require.Zero(t, s.Stats().Unanswered)
}
