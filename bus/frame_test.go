package bus

import (
	"bufio"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"
	"golang.org/x/sys/unix"
)

// sockets makes two ends of a Unix socket.
func sockets(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(privateDir(t), "s"), Net: "unix"})
	require.NoError(t, err)
	defer l.Close()
	a, err = net.DialUnix("unix", nil, &net.UnixAddr{Name: l.Addr().String(), Net: "unix"})
	require.NoError(t, err)
	b, err = l.AcceptUnix()
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = a.Close(), b.Close() })
	return a, b
}

// Frames come in the order in which they were sent, whether the socket takes them at once, in part, or not at all. So
// do their files.
func TestFramesOfASocketThatIsFull(t *testing.T) {
	a, b := sockets(t)
	w := newFrameWriter(a)
	go w.run()
	defer w.close()
	send := func(i int, fd int) {
		f := msgp.AppendBytes(msgp.AppendUint64(beginFrame(frameFree, 2), uint64(i)), make([]byte, i%7*20_000))
		w.send(frame{f, fd})
	}
	const frames = 200
	for i := range frames { // more than the socket holds, and nobody reads
		fd := -1
		if i%10 == 9 {
			file, err := os.CreateTemp(t.TempDir(), "file")
			require.NoError(t, err)
			_, err = file.WriteString(string(rune('A' + i/10)))
			require.NoError(t, err)
			fd, err = unix.Dup(int(file.Fd()))
			require.NoError(t, err)
			require.NoError(t, file.Close())
		}
		send(i, fd)
	}
	w.mu.Lock()
	require.NotEmpty(t, w.queue, "the socket was full")
	w.mu.Unlock()
	files := &fileReader{conn: b}
	defer files.close()
	in := bufio.NewReader(files)
	read := func(i int) {
		got, err := receiveFrame(in)
		require.NoError(t, err)
		kind, f := readFrame(got)
		require.EqualValues(t, frameFree, kind)
		require.EqualValues(t, i, f.nextNumber(1<<32))
		require.Len(t, f.nextBytes(), i%7*20_000)
		require.NoError(t, f.err)
	}
	for i := range frames {
		read(i)
		if i%10 == 9 {
			fd := files.file()
			require.GreaterOrEqual(t, fd, 0)
			var text [1]byte
			_, err := unix.Pread(fd, text[:], 0)
			require.NoError(t, err)
			require.NoError(t, unix.Close(fd))
			require.Equal(t, string(rune('A'+i/10)), string(text[:]))
		}
	}
	eventually(t, func() bool { // the goroutine has nothing left
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.queue) == 0 && !w.writes
	})
	for i := range 10 {
		send(i, -1)
		w.mu.Lock()
		require.Empty(t, w.queue, "the socket takes it at once")
		w.mu.Unlock()
		read(i)
	}
}
