package server_test

import (
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/device"
	"github.com/stepvan/stepvan/internal/devicetest"
	. "github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/server"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/van/memvan"
)

// reaches are what the device of a van can do with an accelerator.
var reaches = map[string]struct {
	set    func(a *devicetest.Accelerator, d *memvan.Device)
	faults devicetest.Faults
	direct bool
}{
	"by dma-buf":   {set: byDMABuf, direct: true},
	"as a peer":    {set: asPeer, direct: true},
	"not exported": {set: asPeer, faults: devicetest.Faults{Export: errNoExport}, direct: true},
	"not at all":   {set: func(*devicetest.Accelerator, *memvan.Device) {}},
	"not in order": {set: byDMABuf, faults: devicetest.Faults{Flush: errNoFlush}},
}

func byDMABuf(a *devicetest.Accelerator, d *memvan.Device) { d.DMABuf = a.Mapped }
func asPeer(a *devicetest.Accelerator, d *memvan.Device)   { d.Peer = a.Bytes }

var (
	errNoExport = fmt.Errorf("no dma-buf: %w", stepvan.ErrNotSupported)
	errNoFlush  = fmt.Errorf("no flush: %w", stepvan.ErrNotSupported)
)

// newDirect makes a cluster whose devices reach memory of a.
func newDirect(t *testing.T, a *devicetest.Accelerator, set func(*devicetest.Accelerator, *memvan.Device)) (*Cluster, *devices) {
	all := new(devices)
	return New(t, Options{Van: Registered(func(instance string) *memvan.Device {
		d := all.of(instance)
		set(a, d)
		return d
	})}), all
}

// Where a device reaches the accelerators of both sides, nothing is copied. The processor touches no byte: the
// addresses of the simulated accelerator fault. Elsewhere the same program works by copies.
func TestADeviceMovesMemoryOfAccelerators(t *testing.T) {
	for name, way := range reaches {
		for _, n := range []int{1, 900, 70_000, 9 << 20} {
			t.Run(name+" "+strconv.Itoa(n), func(t *testing.T) {
				a := devicetest.New(t, devicetest.Options{})
				a.Fail(way.faults)
				c, all := newDirect(t, a, way.set)
				w, s := c.Workers[0], c.Servers[0]
				push, pull := onDevice(t, a, pattern(n, 1)), onDevice(t, a, make([]byte, n))
				answer, buffer := onDevice(t, a, pattern(n, 2)), onDevice(t, a, make([]byte, n))
				pushed, err := w.Register(push)
				require.NoError(t, err)
				pulled, err := w.Register(pull)
				require.NoError(t, err)
				answered, err := s.Register(answer)
				require.NoError(t, err)
				b, err := s.RegisterRecvBuffer(buffer, []stepvan.Rank{0}, Keys(1))
				require.NoError(t, err)
				require.Equal(t, way.direct, pushed.Registered())
				require.Equal(t, way.direct, answered.Registered())
				before := a.Counts()
				small := hostBytes(t, []byte{7})
				for range 3 {
					h, err := w.PushPull(List(push, small), Keys(1, 2), List(pull), Keys(3))
					require.NoError(t, err)
					r := take(t, s, stepvan.LockStep)[0]
					require.Equal(t, buffer.Address(), func() uintptr { x := r.Pushes()[0]; return x.Address() }())
					require.Equal(t, pattern(n, 1), a.Content(r.Pushes()[0]))
					require.Equal(t, []byte{7}, r.Pushes()[1].Bytes())
					resp, err := s.Respond(List(answer), r.ID)
					require.NoError(t, err)
					require.NoError(t, h.Wait(Context(t)))
					require.NoError(t, resp.Wait(Context(t)))
					require.Equal(t, pattern(n, 2), a.Content(pull))
				}
				copies := a.Counts().ToHost + a.Counts().FromHost
				if way.direct {
					require.Zero(t, copies)
					require.Equal(t, before.Flushed+6, a.Counts().Flushed, "behind each push and each answer")
				} else {
					require.Equal(t, 12, copies)
				}
				require.NoError(t, errors.Join(b.Unregister(), pushed.Close(), pulled.Close(), answered.Close()))
				require.Zero(t, countAccelerators(all, w.Instance)+countAccelerators(all, s.Instance))
				closeSoon(t, push, pull, answer, buffer)
			})
		}
	}
}

// closeSoon closes the regions, once nobody reaches them.
func closeSoon(t *testing.T, list ...tensor.Tensor) {
	t.Helper()
	for _, x := range list {
		require.Eventually(t, func() bool { return x.Region().Close() == nil }, WaitLimit, time.Millisecond)
	}
}

// countAccelerators returns how many registrations of memory of accelerators an instance has.
func countAccelerators(d *devices, i Instance) int { return d.of(i.Name).Accelerators() }

// One side may reach its accelerator while the other one copies.
func TestADeviceReachesOneAccelerator(t *testing.T) {
	const n = 70_000
	for _, registers := range []string{"push", "pull", "answer", "buffer"} {
		t.Run(registers, func(t *testing.T) {
			a := devicetest.New(t, devicetest.Options{})
			c, _ := newDirect(t, a, byDMABuf)
			w, s := c.Workers[0], c.Servers[0]
			push, pull, answer := onDevice(t, a, pattern(n, 1)), onDevice(t, a, make([]byte, n)), onDevice(t, a, pattern(n, 2))
			var err error
			switch registers {
			case "push":
				_, err = w.Register(push)
			case "pull":
				_, err = w.Register(pull)
			case "answer":
				_, err = s.Register(answer)
			case "buffer":
				_, err = s.RegisterRecvBuffer(onDevice(t, a, make([]byte, n)), []stepvan.Rank{0}, Keys(1))
			}
			require.NoError(t, err)
			for range 2 {
				h, err := w.PushPull(List(push), Keys(1), List(pull), Keys(3))
				require.NoError(t, err)
				r := take(t, s, stepvan.LockStep)[0]
				if got := r.Pushes()[0]; got.Device().IsHost() {
					require.Equal(t, pattern(n, 1), got.Bytes())
				} else {
					require.Equal(t, pattern(n, 1), a.Content(got))
				}
				resp, err := s.Respond(List(answer), r.ID)
				require.NoError(t, err)
				require.NoError(t, h.Wait(Context(t)))
				require.NoError(t, resp.Wait(Context(t)))
				require.Equal(t, pattern(n, 2), a.Content(pull))
			}
			copies := a.Counts().ToHost + a.Counts().FromHost
			want := map[string]int{"push": 6, "pull": 4, "answer": 4, "buffer": 6}[registers]
			require.Equal(t, want, copies)
		})
	}
}

// A tensor of an accelerator without elements has nothing that a device could write.
func TestAnEmptyTensorOfAnAccelerator(t *testing.T) {
	a := devicetest.New(t, devicetest.Options{})
	for name, reach := range map[string]func(*devicetest.Accelerator, *memvan.Device){
		"reached": byDMABuf, "copied": func(*devicetest.Accelerator, *memvan.Device) {},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := newDirect(t, a, reach)
			w, s := c.Workers[0], c.Servers[0]
			for _, push := range [][]tensor.Tensor{
				List(onDevice(t, a, nil), hostBytes(t, []byte{7})),
				List(onDevice(t, a, nil), onDevice(t, a, []byte{7})),
			} {
				pull := onDevice(t, a, make([]byte, 1))
				h, err := w.PushPull(push, Keys(1, 2), List(onDevice(t, a, nil), pull), Keys(3, 4))
				require.NoError(t, err)
				r := take(t, s, stepvan.LockStep)[0]
				require.Zero(t, r.Pushes()[0].Len())
				require.Equal(t, []byte{7}, r.Pushes()[1].Bytes())
				resp, err := s.Respond(List(onDevice(t, a, nil), onDevice(t, a, []byte{8})), r.ID)
				require.NoError(t, err)
				require.NoError(t, h.Wait(Context(t)))
				require.NoError(t, resp.Wait(Context(t)))
				require.Equal(t, []byte{8}, a.Content(pull))
			}
		})
	}
}

// A program may end the registration of memory that a device moves at that moment.
func TestRegistrationsEndWhileADeviceMoves(t *testing.T) {
	const n = 9 << 20 // several pieces
	a := devicetest.New(t, devicetest.Options{})
	c, _ := newDirect(t, a, byDMABuf)
	w, s := c.Workers[0], c.Servers[0]
	_, err := s.RegisterRecvBuffer(onDevice(t, a, make([]byte, n)), []stepvan.Rank{0}, Keys(1))
	require.NoError(t, err)
	for range 20 {
		push, pull, answer := onDevice(t, a, pattern(n, 1)), onDevice(t, a, make([]byte, n)), onDevice(t, a, pattern(n, 2))
		pushed, err := w.Register(push)
		require.NoError(t, err)
		pulled, err := w.Register(pull)
		require.NoError(t, err)
		answered, err := s.Register(answer)
		require.NoError(t, err)
		h, err := w.PushPull(List(push), Keys(1), List(pull), Keys(3))
		require.NoError(t, err)
		require.NoError(t, pushed.Close())
		r := take(t, s, stepvan.LockStep)[0]
		require.Equal(t, pattern(n, 1), a.Content(r.Pushes()[0]))
		resp, err := s.Respond(List(answer), r.ID)
		require.NoError(t, err)
		require.NoError(t, errors.Join(answered.Close(), pulled.Close()))
		require.NoError(t, h.Wait(Context(t)))
		require.NoError(t, resp.Wait(Context(t)))
		require.Equal(t, pattern(n, 2), a.Content(pull))
		closeSoon(t, push, pull, answer)
	}
}

// A push that was written to an accelerator before its buffer ended is copied out of it, before the buffer is the
// program's again.
func TestALatePushIsCopiedOutOfItsAccelerator(t *testing.T) {
	const n = 70_000
	a := devicetest.New(t, devicetest.Options{})
	c, _ := newDirect(t, a, byDMABuf)
	w, s := c.Workers[0], c.Servers[0]
	push := onDevice(t, a, pattern(n, 1))
	_, err := w.Register(push)
	require.NoError(t, err)
	for range 20 {
		buffer := onDevice(t, a, make([]byte, n))
		b, err := s.RegisterRecvBuffer(buffer, []stepvan.Rank{0}, Keys(1))
		require.NoError(t, err)
		h, err := w.PushPull(List(push), Keys(1), nil, nil)
		require.NoError(t, err)
		ended := b.Unregister()
		if ended == nil {
			require.NoError(t, buffer.Region().Close())
		}
		r := take(t, s, stepvan.LockStep)[0]
		if got := r.Pushes()[0]; got.Device().IsHost() {
			require.Equal(t, pattern(n, 1), got.Bytes())
		} else {
			require.ErrorIs(t, ended, stepvan.ErrBusy)
			require.Equal(t, pattern(n, 1), a.Content(got))
		}
		respond(t, s, r.ID)
		require.NoError(t, h.Wait(Context(t)))
		require.NoError(t, b.Unregister())
	}
}

// Rows of an accelerator are answered to all workers, and written where these reach an accelerator or the host.
func TestADeviceMovesRowsOfAnAccelerator(t *testing.T) {
	a := devicetest.New(t, devicetest.Options{})
	all := new(devices)
	c := New(t, Options{Workers: 2, Van: Registered(func(instance string) *memvan.Device {
		d := all.of(instance)
		byDMABuf(a, d)
		return d
	})})
	s := c.Servers[0]
	rows := a.Tensor(t, 0, tensor.Uint8, pattern(3*5000, 1), 3, 5000)
	_, err := s.Register(rows)
	require.NoError(t, err)
	first, second := onDevice(t, a, make([]byte, 5000)), shared(t, c.Workers[1].Instance, 0, 2500)
	_, err = c.Workers[0].Register(first)
	require.NoError(t, err)
	one, err := c.Workers[0].PushPull(nil, nil, List(first), Keys(1))
	require.NoError(t, err)
	two, err := c.Workers[1].PushPull(nil, nil, List(second), Keys(1))
	require.NoError(t, err)
	batch := take(t, s, stepvan.LockStep)
	like := List(hostBytes(t, make([]byte, 1)), hostBytes(t, make([]byte, 2)))
	resp, err := s.RespondVecOn(device.Stream{}, rows, like, []server.RequestID{batch[0].ID, batch[1].ID})
	require.NoError(t, err)
	require.NoError(t, resp.Wait(Context(t)))
	require.NoError(t, one.Wait(Context(t)))
	require.NoError(t, two.Wait(Context(t)))
	require.Equal(t, pattern(15000, 1)[:5000], a.Content(first))
	require.Equal(t, pattern(15000, 1)[5000:], second.Bytes())
	require.Zero(t, a.Counts().ToHost+a.Counts().FromHost)
}

// Over every van a registered tensor of an accelerator travels, whether or not a device reaches it. Over soft-RoCE none
// does: its driver takes no dma-buf, and the addresses cannot be pinned.
func TestRegisteredTensorsOfAnAcceleratorTravel(t *testing.T) {
	forVans(t, func(t *testing.T, v Van) {
		const n = 70_000
		a := devicetest.New(t, devicetest.Options{})
		c := New(t, Options{Van: v})
		w, s := c.Workers[0], c.Servers[0]
		push, pull, answer := onDevice(t, a, pattern(n, 1)), onDevice(t, a, make([]byte, n)), onDevice(t, a, pattern(n, 2))
		pushed, err := w.Register(push)
		require.NoError(t, err)
		require.False(t, pushed.Registered())
		pulled, err := w.Register(pull)
		require.NoError(t, err)
		answered, err := s.Register(answer)
		require.NoError(t, err)
		require.False(t, answered.Registered())
		_, err = s.RegisterRecvBuffer(onDevice(t, a, make([]byte, n)), []stepvan.Rank{0}, Keys(1))
		require.NoError(t, err)
		h, err := w.PushPull(List(push), Keys(1), List(pull), Keys(3))
		require.NoError(t, err)
		r := take(t, s, stepvan.LockStep)[0]
		require.Equal(t, pattern(n, 1), a.Content(r.Pushes()[0]))
		resp, err := s.Respond(List(answer), r.ID)
		require.NoError(t, err)
		require.NoError(t, h.Wait(Context(t)))
		require.NoError(t, resp.Wait(Context(t)))
		require.Equal(t, pattern(n, 2), a.Content(pull))
		require.Equal(t, 4, a.Counts().ToHost+a.Counts().FromHost)
		require.NoError(t, errors.Join(pushed.Close(), pulled.Close(), answered.Close()))
	})
}
