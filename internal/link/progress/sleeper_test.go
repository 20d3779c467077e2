package progress

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A background driver that listens again to a descriptor learns of what came meanwhile. It does so also after another
// goroutine has read what the descriptor held before.
func TestListeningMissesNothing(t *testing.T) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	require.NoError(t, err)
	defer func() { _ = unix.Close(fd) }()
	p, err := newEpollSleeper([]Descriptor{{FD: fd}})
	require.NoError(t, err)
	defer p.close()
	turns, ended := make(chan struct{}, 64), make(chan struct{})
	var over atomic.Bool
	go func() {
		defer close(ended)
		p.runBackground(func() bool {
			turns <- struct{}{}
			return over.Load()
		})
	}()
	woken := func() {
		t.Helper()
		select {
		case <-turns:
		case <-time.After(bound):
			t.Fatal("the background driver slept through something")
		}
	}
	one := []byte{1, 0, 0, 0, 0, 0, 0, 0}
	woken() // sits down
	for range 10 {
		p.listen(true)
		_, err = unix.Write(fd, one)
		require.NoError(t, err)
		woken()
		p.listen(false)
		_, err = unix.Read(fd, make([]byte, 8))
		require.NoError(t, err)
		_, err = unix.Write(fd, one) // nobody listens
		require.NoError(t, err)
		p.listen(true)
		woken()
		p.listen(false)
		_, err = unix.Read(fd, make([]byte, 8))
		require.NoError(t, err)
	}
	over.Store(true)
	p.wakeBackground()
	<-ended
}
