package server_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	. "github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/server"
	"github.com/stepvan/stepvan/tensor"
)

// newImpatient returns a writer whose server does not wait in its calls, only in Wait.
func newImpatient(t *testing.T) (*writer, tensor.Tensor, *server.ReceiveBuffer) {
	w := newWriterOf(t, server.Options{Policy: stepvan.AnyReady, Patience: time.Nanosecond})
	buffer, err := w.s.Memory.Zeros(tensor.Float32, 1)
	require.NoError(t, err)
	reg, err := w.s.RegisterRecvBuffer(buffer, ranks(0), Keys(1))
	if err != nil {
		reg = pendingOf(t, err)
	}
	require.True(t, reg.Live())
	require.NoError(t, reg.Wait(Context(t)))
	w.announcement(wire.OpAnnounce)
	return w, buffer, reg
}

// pendingOf returns the buffer of a PendingError, and checks that the error names the worker.
func pendingOf(t *testing.T, err error) *server.ReceiveBuffer {
	t.Helper()
	requireAwaited(t, err, context.DeadlineExceeded, "register_recv_buffer")
	var pending *server.PendingError
	require.ErrorAs(t, err, &pending)
	require.NotNil(t, pending.Buffer)
	return pending.Buffer
}

// requireAwaited checks that a wait failed, and that the error names the worker.
func requireAwaited(t *testing.T, err, why error, op string) {
	t.Helper()
	require.ErrorIs(t, err, why)
	var fault *stepvan.OpError
	require.ErrorAs(t, err, &fault)
	require.Equal(t, op, fault.Op)
	require.Equal(t, "worker 0", fault.Peer)
}

// A worker that does not release its chunk does not block Unregister for ever.
func TestUnregisterDoesNotWaitForEver(t *testing.T) {
	w, buffer, reg := newImpatient(t)
	for range 2 { // the second one waits for the same
		requireAwaited(t, reg.Unregister(), context.DeadlineExceeded, "unregister")
		require.False(t, reg.Live())
		require.ErrorIs(t, buffer.Region().Close(), stepvan.ErrBusy)
	}
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	requireAwaited(t, reg.Wait(gone), context.Canceled, "wait for a registration")
	_, generation := w.announcement(wire.OpWithdraw)
	w.fence(generation)
	require.NoError(t, reg.Wait(Context(t)))
	require.NoError(t, reg.Unregister())
	require.NoError(t, buffer.Region().Close())
	require.NoError(t, reg.Wait(gone), "there is nothing to wait for")
}

func TestReplacingDoesNotWaitForEver(t *testing.T) {
	w, first, old := newImpatient(t)
	second := Floats(t, 0)
	none, err := w.s.RegisterRecvBuffer(second, ranks(0), Keys(1))
	require.Nil(t, none, "what is with an error is overlooked")
	reg := pendingOf(t, fmt.Errorf("a program: %w", err))
	require.Equal(t, second, reg.Tensor())
	require.True(t, reg.Live())
	_, generation := w.announcement(wire.OpWithdraw)
	announced, _ := w.announcement(wire.OpAnnounce)
	w.write(1, announced[0], 7, nil)
	r := take(t, w.s, stepvan.AnyReady)[0]
	require.True(t, isPartOf(r.Pushes()[0], second), "it is registered all the same")
	respond(t, w.s, r.ID)
	requireAwaited(t, old.Unregister(), context.DeadlineExceeded, "unregister") // which waits for its memory, too
	require.ErrorIs(t, first.Region().Close(), stepvan.ErrBusy)
	w.fence(generation)
	require.NoError(t, reg.Wait(Context(t)))
	require.NoError(t, old.Wait(Context(t)))
	require.NoError(t, first.Region().Close())
}

func TestADeathEndsTheWaitForARegistration(t *testing.T) {
	w, first, old := newImpatient(t)
	_, err := w.s.RegisterRecvBuffer(Floats(t, 0), ranks(0), Keys(1))
	reg := pendingOf(t, err)
	waits := start(func() error { return reg.Wait(Context(t)) })
	require.True(t, w.c.Net.Kill("raw"))
	require.NoError(t, <-waits)
	require.NoError(t, old.Unregister())
	require.NoError(t, first.Region().Close())
}

// The end of the transport ends a wait for workers.
func TestTheEndOfTheNodeEndsTheWaitForARegistration(t *testing.T) {
	w, buffer, reg := newImpatient(t)
	defer Free(t, buffer)
	requireAwaited(t, reg.Unregister(), context.DeadlineExceeded, "unregister")
	ended := start(func() error { return reg.Wait(Context(t)) })
	require.NoError(t, w.c.Workers[1].Transport.Close())
	require.NoError(t, w.s.Close())
	require.NoError(t, w.s.Transport.Close())
	if err := <-ended; err != nil { // unless the worker released it first
		require.ErrorIs(t, err, stepvan.ErrClosed)
	}
}
