package replay

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/device"
	"github.com/stepvan/stepvan/internal/devicetest"
	"github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/tensor"
)

const copyTime = 10 * time.Microsecond

// onDevice are the options of a ring with twins on a simulated accelerator, whose clock the test moves.
func onDevice(t *testing.T, o Options) (*devicetest.Accelerator, Options) {
	t.Helper()
	a := devicetest.New(t, devicetest.Options{Manual: true, PerCopy: copyTime})
	o.Device = &Device{Stream: device.Stream{Device: a.Device(0)}}
	for range max(o.Depth, 2) {
		o.Device.Slots = append(o.Device.Slots, a.Tensor(t, 0, tensor.Float32, make([]byte, o.Rows*32), o.Rows, 8))
	}
	return a, o
}

// A ready batch is whole, and a batch that kernels read stays as it was, in whatever order the device works.
func TestAnyOrderOfTheDeviceGivesEachBatchWhole(t *testing.T) {
	schedules := 10_000
	if pairtest.Race {
		schedules = 1000
	}
	a, o := onDevice(t, options(4, 1))
	x := newRig(t, pairtest.Mem(), o, 40, 64)
	rng := rand.New(rand.NewPCG(1, 2))
	learner := o.Device.Stream
	early := 0
	begin := func(tick Tick) {
		begun, err := x.ring.StartPrepare(tick, 4, 0)
		require.NoError(t, err)
		require.True(t, begun)
	}
	begin(0)
	for tick := range Tick(schedules) {
		want := picked(small(), 1000+uint64(tick), 4, 40, 64)
		x.packed(t)
		for {
			ok, err := x.ring.BatchReady(tick, 4)
			require.NoError(t, err)
			if ok {
				break
			}
			early++
			a.Advance(time.Duration(rng.IntN(12)) * time.Microsecond)
		}
		b := x.sample(t, tick)
		if !equal(want, a.Content(b.Rows)) {
			require.Equal(t, want, a.Content(b.Rows), "tick %d is ready early", tick)
		}
		reads := rng.IntN(3)
		for range reads { // kernels that read the batch later
			require.NoError(t, a.Work(learner, time.Duration(rng.IntN(40))*time.Microsecond, func() {
				if !equal(want, a.Peek(b.Rows)) {
					t.Errorf("a kernel reads another batch than that of tick %d", tick)
				}
			}))
		}
		if rng.IntN(2) == 0 {
			begin(tick + 1)
			require.NoError(t, x.ring.AfterTick())
		} else {
			require.NoError(t, x.ring.AfterTick())
			begin(tick + 1)
		}
		if t.Failed() {
			return
		}
		a.Advance(time.Duration(rng.IntN(8)) * time.Microsecond)
	}
	require.Positive(t, early)
	x.packed(t)
	a.Advance(time.Second)
	require.NoError(t, x.ring.Close(pairtest.Context(t)))
	require.Equal(t, devicetest.Counts{ToHost: 0, FromHost: a.Counts().FromHost}, a.Counts(), "what was pinned, recorded and made is given back")
}

// packed waits until the copy of the batch has begun that is prepared.
func (x *rig) packed(t *testing.T) {
	t.Helper()
	x.ring.mu.Lock()
	p := x.ring.pending
	x.ring.mu.Unlock()
	require.NoError(t, p.packed.Wait(pairtest.Context(t)))
}

func equal(a, b []byte) bool { return string(a) == string(b) }

func TestADeviceThatFails(t *testing.T) {
	a, o := onDevice(t, options(64, 1))
	x := newRig(t, pairtest.Mem(), o, 40, 64)
	require.Equal(t, 2, a.Counts().Pinned)
	broken := errors.New("it fell off the bus")
	for tick, faults := range map[Tick]devicetest.Faults{1: {Queue: broken}, 2: {Copy: broken}} {
		a.Fail(faults)
		_, err := x.ring.StartPrepare(tick, 64, 0)
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			a.Advance(copyTime)
			_, err = x.ring.BatchReady(tick, 64)
			return err != nil
		}, pairtest.WaitLimit, time.Millisecond)
		require.ErrorIs(t, err, broken)
		require.ErrorContains(t, err, "the copy to the device")
		a.Fail(devicetest.Faults{})
	}
	require.NoError(t, x.ring.Close(pairtest.Context(t)))
	require.Zero(t, a.Counts().Pinned)
	require.Zero(t, a.Counts().Events)
}

// Close waits for a copy that runs, and so does Sample. Both give up with their context.
func TestCloseWhileACopyRuns(t *testing.T) {
	a, o := onDevice(t, options(64, 1))
	x := newRig(t, pairtest.Mem(), o, 40, 64)
	_, err := x.ring.StartPrepare(1, 64, 0)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return a.Counts().FromHost == 1 }, pairtest.WaitLimit, time.Millisecond)
	soon, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err = x.ring.Sample(soon, 1, 64)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	waiting := make(chan error, 1)
	go func() { waiting <- x.ring.WaitUntilReady(pairtest.Context(t), 1, 64) }()
	soon, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, x.ring.Close(soon), context.DeadlineExceeded)
	require.ErrorIs(t, <-waiting, stepvan.ErrClosed)
	require.Equal(t, 2, a.Counts().Pinned)
	a.Advance(copyTime)
	require.NoError(t, x.ring.Close(pairtest.Context(t)))
	require.Zero(t, a.Counts().Pinned)
}

// counting pins some pieces of memory, and refuses the next.
type counting struct {
	*devicetest.Accelerator
	left int
}

var errNoPins = errors.New("no more memory can be locked")

func (c *counting) Pin(b []byte) error {
	if c.left--; c.left < 0 {
		return errNoPins
	}
	return c.Accelerator.Pin(b)
}

// Where a slot cannot be registered, those before it are given back.
func TestSlotsThatCannotBeRegistered(t *testing.T) {
	a, o := onDevice(t, options(64, 1))
	peers := pairtest.NewPeers(t, pairtest.Options{}, 2)
	stop, err := device.Register(tensor.DeviceROCM, &counting{a, 1})
	require.NoError(t, err)
	defer stop()
	o.Memory, o.Log = peers[0].Memory, zerolog.Nop()
	good := *o.Device
	a.Fail(devicetest.Faults{Pin: errNoPins})
	_, err = NewRing(peers[0].Peer, o)
	require.ErrorIs(t, err, errNoPins)
	require.ErrorContains(t, err, "slot 0: the driver does not register its 2048 bytes")
	a.Fail(devicetest.Faults{})
	require.Zero(t, a.Counts().Pinned+a.Counts().Streams)

	host, err := peers[0].Memory.Zeros(tensor.Float32, 64, 8)
	require.NoError(t, err)
	defer pairtest.Free(t, host)
	for text, d := range map[string]Device{
		"other slots than the ring (got 1, want 2)": {Slots: good.Slots[:1], Stream: good.Stream},
		"device slot 1: it is not the twin":         {Slots: []tensor.Tensor{good.Slots[0], host}, Stream: good.Stream},
		"its stream is of another device":           {Slots: good.Slots, Stream: device.Stream{Device: a.Device(1)}},
	} {
		o.Device = &d
		_, err = NewRing(peers[0].Peer, o)
		require.ErrorIs(t, err, stepvan.ErrInvalid, text)
		require.ErrorContains(t, err, text)
	}
	require.Zero(t, a.Counts().Pinned+a.Counts().Streams)
}
