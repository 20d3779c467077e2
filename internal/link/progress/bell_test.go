package progress

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A ring that comes after close must not write to a descriptor that has the number of
// the closed one: that would put bytes into somebody else's stream.
func TestRingAfterCloseWritesNowhere(t *testing.T) {
	var pipe [2]int
	require.NoError(t, unix.Pipe2(pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK))
	defer func() { _, _ = unix.Close(pipe[0]), unix.Close(pipe[1]) }()
	b, err := newBell()
	require.NoError(t, err)
	number := b.fd
	b.close()
	require.NoError(t, unix.Dup3(pipe[1], number, unix.O_CLOEXEC)) // the number names the pipe
	defer func() { _ = unix.Close(number) }()
	b.ring()
	_, err = unix.Read(pipe[0], make([]byte, 8))
	require.ErrorIs(t, err, unix.EAGAIN)
}

func TestBellRemembersOneRing(t *testing.T) {
	b, err := newBell()
	require.NoError(t, err)
	defer b.close()
	require.False(t, b.answer())
	b.ring()
	b.ring()
	require.True(t, b.answer())
	require.False(t, b.answer())
	b.ring()
	require.True(t, b.answer())
}

// A ringer that is slow to write leaves nothing behind that keeps the sleeper awake for ever.
func TestAnswerBeforeTheRingIsWritten(t *testing.T) {
	b, err := newBell()
	require.NoError(t, err)
	defer b.close()
	b.mu.Lock()
	rung := make(chan struct{})
	go func() { defer close(rung); b.ring() }()
	for !b.rung.Load() {
		runtime.Gosched()
	}
	require.True(t, b.answer())
	b.mu.Unlock()
	<-rung
	require.True(t, b.answer())
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(b.fd), Events: unix.POLLIN}}, 0)
	require.NoError(t, err)
	require.Zero(t, n)
	require.False(t, b.answer())
}
