package devicetest

import (
	"errors"
	"runtime/debug"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/device"
	"github.com/stepvan/stepvan/tensor"
)

// read reads a byte at an address, and reports the fault that this may be.
func read(address uintptr) (b byte, fault error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() != nil {
			fault = errors.New("fault")
		}
	}()
	return **(**byte)(unsafe.Pointer(&address)), nil
}

func newStream(t *testing.T, a *Accelerator) device.Stream {
	t.Helper()
	s, err := a.NewStream(a.Device(0))
	require.NoError(t, err)
	return s
}

func record(t *testing.T, a *Accelerator, s device.Stream) device.Event {
	t.Helper()
	e, err := a.Record(s)
	require.NoError(t, err)
	t.Cleanup(e.Close)
	return e
}

// isOver asks an event whether its work is over, without an error.
func isOver(t *testing.T, e device.Event) bool {
	t.Helper()
	done, err := e.Query()
	require.NoError(t, err)
	return done
}

func TestTheProcessorDoesNotReachTheMemory(t *testing.T) {
	a := New(t, Options{})
	_, fault := read(a.Alloc(t, 0, 100))
	require.Error(t, fault)
}

// Copies end later and in order, on the clock of the test.
func TestCopiesEndLaterAndInOrder(t *testing.T) {
	a := New(t, Options{Manual: true, PerCopy: time.Second})
	s := newStream(t, a)
	at := a.Alloc(t, 0, 3)
	host, back := []byte{1, 2, 3}, make([]byte, 3)
	require.NoError(t, a.FromHost(s, at, host))
	first := record(t, a, s)
	require.NoError(t, a.ToHost(s, back, at))
	second := record(t, a, s)
	require.False(t, isOver(t, first))
	a.Advance(time.Second)
	require.True(t, isOver(t, first))
	require.False(t, isOver(t, second))
	require.Equal(t, []byte{0, 0, 0}, back)
	a.Advance(time.Second)
	require.True(t, isOver(t, second))
	require.Equal(t, host, back)
}

// A stream that follows an event of another one waits for it.
func TestStreamsFollowEvents(t *testing.T) {
	a := New(t, Options{Manual: true})
	one, two := newStream(t, a), newStream(t, a)
	ran := false
	require.NoError(t, a.Work(one, time.Second, func() {}))
	require.NoError(t, a.Follow(two, record(t, a, one)))
	require.NoError(t, a.Work(two, 0, func() { ran = true }))
	last := record(t, a, two)
	require.False(t, isOver(t, last))
	require.False(t, ran)
	a.Advance(time.Second)
	require.True(t, isOver(t, last))
	require.True(t, ran)
}

func TestTheClockOfABubbleMovesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := New(t, Options{PerCopy: time.Second})
		s := newStream(t, a)
		at, host := a.Alloc(t, 0, 1), []byte{7}
		begin := time.Now()
		require.NoError(t, a.FromHost(s, at, host))
		e, err := a.Record(s)
		require.NoError(t, err)
		require.NoError(t, device.Await(e, nil))
		e.Close()
		require.InDelta(t, time.Second.Seconds(), time.Since(begin).Seconds(), 0.1)
		require.Equal(t, host, a.Bytes(at, 1))
	})
}

func TestAwaitGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := New(t, Options{})
		a.Fail(Faults{Hang: true})
		require.NoError(t, a.Work(device.Stream{Device: a.Device(0)}, 0, func() {}))
		e, err := a.Record(device.Stream{Device: a.Device(0)})
		require.NoError(t, err)
		defer e.Close()
		enough, begin := errors.New("enough"), time.Now()
		require.Equal(t, enough, device.Await(e, func() error {
			if time.Since(begin) > time.Second {
				return enough
			}
			return nil
		}))
	})
}

func TestFaults(t *testing.T) {
	a := New(t, Options{Manual: true, Devices: 2, PerCopy: 1})
	boom := errors.New("boom")
	s := newStream(t, a)
	at, b := a.Alloc(t, 0, 1), make([]byte, 1)
	a.Fail(Faults{Queue: boom})
	require.Equal(t, boom, a.ToHost(s, b, at))
	a.Fail(Faults{Pin: boom, Export: boom})
	require.Equal(t, boom, a.Pin(b))
	_, err := a.Export(a.Device(0), at, 1)
	require.Equal(t, boom, err)
	_, err = a.Record(device.Stream{Device: a.Device(1), Handle: s.Handle})
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	require.ErrorContains(t, err, "it belongs to another device (got ext_dev:0, want ext_dev:1)")
	_, err = a.NewStream(a.Device(2))
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	require.ErrorIs(t, a.ToHost(s, make([]byte, 2), at), stepvan.ErrInvalid)

	a.Fail(Faults{})
	require.NoError(t, a.ToHost(s, b, at))
	freed := record(t, a, s)
	a.Free(at)
	a.Advance(1)
	done, err := freed.Query()
	require.True(t, done)
	require.ErrorContains(t, err, "were freed")

	s = newStream(t, a)
	at = a.Alloc(t, 0, 1)
	require.NoError(t, a.ToHost(s, b, at))
	e := record(t, a, s)
	a.Fail(Faults{Copy: boom})
	a.Advance(1)
	_, err = e.Query()
	require.Equal(t, boom, err)
	a.Fail(Faults{Gone: boom})
	_, err = a.NewStream(a.Device(0))
	require.Equal(t, boom, err)
	_, err = e.Query()
	require.Equal(t, boom, err)
}

func TestExportsAndPins(t *testing.T) {
	a := New(t, Options{})
	at, b := a.Alloc(t, 0, 10), make([]byte, 1)
	f, err := a.Export(a.Device(0), at, 10)
	require.NoError(t, err)
	require.NoError(t, syscall.Close(f.FD))
	_, err = a.Export(a.Device(0), at, 11)
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	require.NoError(t, a.Pin(b))
	require.NoError(t, a.Pin(b))
	require.NoError(t, a.Unpin(b))
	require.Equal(t, 1, a.Counts().Pinned)
	require.NoError(t, a.Unpin(b))
	require.ErrorIs(t, a.Unpin(b), stepvan.ErrInvalid)
	require.Equal(t, []byte{1, 2}, a.Content(a.Tensor(t, 0, tensor.Uint8, []byte{1, 2}, 2)))
}
