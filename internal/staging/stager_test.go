package staging

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/device"
	"github.com/stepvan/stepvan/internal/devicetest"
	"github.com/stepvan/stepvan/tensor"
)

func newStager(t *testing.T, o tensor.Options) (*Stager, *tensor.Allocator) {
	t.Helper()
	memory, err := tensor.NewAllocator(o)
	require.NoError(t, err)
	return New(memory, zerolog.Nop()), memory
}

func never() error { return nil }

// An arena is pinned once for all regions in it, and stays pinned until Close.
func TestMemoryIsPinned(t *testing.T) {
	a := devicetest.New(t, devicetest.Options{})
	s, memory := newStager(t, tensor.Options{})
	for range 3 {
		r, err := s.Memory(a.Device(0), 1000, never)
		require.NoError(t, err)
		require.Len(t, r.Bytes(), 1000)
		defer s.Put(r)
	}
	require.Equal(t, devicetest.Counts{Pinned: 1, Streams: 2}, a.Counts())
	require.NoError(t, s.Close())
	require.Zero(t, a.Counts())
	require.Zero(t, memory.Stats().Misuses)
}

func TestMemoryThatCannotBePinnedIsUsed(t *testing.T) {
	a := devicetest.New(t, devicetest.Options{})
	a.Fail(devicetest.Faults{Pin: errors.New("no memlock")})
	s, _ := newStager(t, tensor.Options{})
	r, err := s.Memory(a.Device(0), 3, never)
	require.NoError(t, err)
	copy(r.Bytes(), "abc")
	x := a.Tensor(t, 0, tensor.Uint8, make([]byte, 3), 3)
	c, err := s.BeginIn(a.Device(0), []Move{{x, r.Bytes()}})
	require.NoError(t, err)
	require.NoError(t, c.Await())
	require.Equal(t, "abc", string(a.Content(x)))
	require.Equal(t, Stats{BytesIn: 3}, s.Stats())
	require.NoError(t, s.Close())
}

func TestAFullPoolIsWaitedFor(t *testing.T) {
	a := devicetest.New(t, devicetest.Options{})
	const limit = 4 << 20
	s, _ := newStager(t, tensor.Options{MaxBytes: limit})
	_, err := s.Memory(a.Device(0), limit+1, never)
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	require.ErrorContains(t, err, "raise STEPVAN_POOL_BYTES")
	first, err := s.Memory(a.Device(0), limit/2+1, never)
	require.NoError(t, err)
	enough := errors.New("enough")
	_, err = s.Memory(a.Device(0), limit/2+1, func() error { return enough })
	require.Equal(t, enough, err)
	var looks atomic.Int32
	second, err := s.Memory(a.Device(0), limit/2+1, func() error {
		if looks.Add(1) == 2 {
			s.Put(first)
		}
		return nil
	})
	require.NoError(t, err)
	s.Put(second)
	require.NoError(t, s.Close())
}

// After a failure the next copies have streams of their own. Copies that were queued before are over by then.
func TestAFailureCostsItsStreams(t *testing.T) {
	a := devicetest.New(t, devicetest.Options{})
	s, _ := newStager(t, tensor.Options{})
	x, host := a.Tensor(t, 0, tensor.Uint8, []byte("abc"), 3), make([]byte, 3)
	boom := errors.New("boom")
	a.Fail(devicetest.Faults{Copy: boom})
	require.Equal(t, boom, s.Out(a.Device(0), []Move{{x, host}}))
	a.Fail(devicetest.Faults{})
	foreign, err := tensor.FromDevice(a.Device(0), x.Address()+100, tensor.Uint8, tensor.ShapeOf(3), nil)
	require.NoError(t, err)
	require.ErrorIs(t, s.Out(a.Device(0), []Move{{x, host}, {foreign, host}}), stepvan.ErrInvalid)
	clear(host)
	require.NoError(t, s.Out(a.Device(0), []Move{{Tensor: x}, {x, host}}))
	require.Equal(t, "abc", string(host))
	require.NoError(t, s.Close())
	require.Zero(t, a.Counts().Events+a.Counts().Streams)
}

func TestAStreamFollowsCopies(t *testing.T) {
	a := devicetest.New(t, devicetest.Options{Manual: true, PerCopy: time.Second})
	s, _ := newStager(t, tensor.Options{})
	x := a.Tensor(t, 0, tensor.Uint8, make([]byte, 1), 1)
	c, err := s.BeginIn(a.Device(0), []Move{{x, []byte{1}}})
	require.NoError(t, err)
	stream := device.Stream{Device: a.Device(0)}
	waits, err := c.Follow(stream)
	require.NoError(t, err)
	require.True(t, waits)
	_, err = c.Follow(device.Stream{Device: tensor.Device{Kind: tensor.DeviceROCM}})
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	a.Advance(time.Second)
	require.NoError(t, c.Await())
	waits, err = c.Follow(stream)
	require.NoError(t, err)
	require.False(t, waits)
	require.NoError(t, s.Close())
}

func TestWithoutADriver(t *testing.T) {
	s, _ := newStager(t, tensor.Options{})
	_, err := s.Memory(tensor.Device{Kind: tensor.DeviceROCM}, 1, never)
	require.ErrorIs(t, err, stepvan.ErrNotSupported)
	require.ErrorIs(t, s.Out(tensor.Device{Kind: tensor.DeviceROCM}, nil), stepvan.ErrNotSupported)
}
