package progress

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A wake-up after close must not write to a descriptor that has the number of the closed one. It would put bytes into a
// foreign stream.
func TestWakeAfterCloseWritesNowhere(t *testing.T) {
	var pipe [2]int
	require.NoError(t, unix.Pipe2(pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK))
	defer func() { _, _ = unix.Close(pipe[0]), unix.Close(pipe[1]) }()
	b, err := newEventfd()
	require.NoError(t, err)
	number := b.fd
	b.close()
	require.NoError(t, unix.Dup3(pipe[1], number, unix.O_CLOEXEC)) // the number names the pipe
	defer func() { _ = unix.Close(number) }()
	b.wake()
	_, err = unix.Read(pipe[0], make([]byte, 8))
	require.ErrorIs(t, err, unix.EAGAIN)
}

func TestEventfdRemembersOneWake(t *testing.T) {
	b, err := newEventfd()
	require.NoError(t, err)
	defer b.close()
	require.False(t, b.takeWake())
	b.wake()
	b.wake()
	require.True(t, b.takeWake())
	require.False(t, b.takeWake())
	b.wake()
	require.True(t, b.takeWake())
}

// A caller of wake that is slow to write leaves nothing behind that keeps the sleeper awake for ever.
func TestTakeWakeBeforeTheWakeIsWritten(t *testing.T) {
	b, err := newEventfd()
	require.NoError(t, err)
	defer b.close()
	b.mu.Lock()
	rung := make(chan struct{})
	go func() { defer close(rung); b.wake() }()
	for !b.woken.Load() {
		runtime.Gosched()
	}
	require.True(t, b.takeWake())
	b.mu.Unlock()
	<-rung
	require.True(t, b.takeWake())
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(b.fd), Events: unix.POLLIN}}, 0)
	require.NoError(t, err)
	require.Zero(t, n)
	require.False(t, b.takeWake())
}
