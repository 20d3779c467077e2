package sys

import (
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestASleepEndsWithADescriptorOrItsLimit(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer func() { require.NoError(t, r.Close()) }()
	defer func() { require.NoError(t, w.Close()) }()
	for _, yields := range []bool{false, true} {
		fds := []unix.PollFd{{Fd: int32(r.Fd()), Events: unix.POLLIN}}
		Sleep(fds, time.Millisecond, yields)
		require.Zero(t, fds[0].Revents)
		_, err = w.Write([]byte{1})
		require.NoError(t, err)
		Sleep(fds, time.Hour, yields)
		require.EqualValues(t, unix.POLLIN, fds[0].Revents)
		_, err = r.Read(make([]byte, 1))
		require.NoError(t, err)
	}
}

// The collector ends a sleep of which the runtime does not know.
func TestASleepDoesNotHoldTheCollectorUp(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	r, w, err := os.Pipe()
	require.NoError(t, err)
	asleep, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		close(asleep)
		for fds := []unix.PollFd{{Fd: int32(r.Fd()), Events: unix.POLLIN}}; fds[0].Revents == 0; {
			Sleep(fds, time.Hour, false)
		}
	}()
	<-asleep
	for range 3 {
		runtime.GC() // stops the world
	}
	require.NoError(t, w.Close()) // POLLHUP
	<-done
	require.NoError(t, r.Close())
}

func TestPreemptionsOnlyRise(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := Preemptions()
	for range 1000 {
		Yield()
		n := Preemptions()
		require.GreaterOrEqual(t, n, before)
		before = n
	}
}
