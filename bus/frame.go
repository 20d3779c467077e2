package bus

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"sync"
	"syscall"

	"github.com/tinylib/msgp/msgp"
	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/sys"
)

// A client in another process and its agent exchange frames over a Unix socket. A frame is its length in four bytes and
// a list in MessagePack, which begins with the kind of the frame.
const (
	frameHello      = 1 + iota // client: version, rank + 1; agent: version, length of the queue
	frameCommand               // client: semaphore, role, patience in nanoseconds, command
	frameCompletion            // agent: semaphore, failure, state, round, failure of the batch, signal
	frameAbandon               // client: semaphore, whether its time was up
	frameAllocate              // client: number of the call, bytes
	frameMemory                // agent: number of the call, failure, number of the memory, offset in the file, with the file
	frameFree                  // client: number of the memory
	frameLend                  // client: number of the call, address, bytes
	frameEnd
)

const (
	frameVersion = 1
	maxFrame     = MaxCommand + 4<<10
)

// frame is one of the lists above, as it is sent or has come.
type frame struct {
	b  []byte
	fd int // -1: none
}

// beginFrame begins a frame of some parts.
func beginFrame(kind uint64, parts uint32) []byte {
	return msgp.AppendUint64(msgp.AppendArrayHeader(make([]byte, 4, 64), parts+1), kind)
}

// readFrame begins to read a frame.
func readFrame(b []byte) (kind uint64, f *fields) {
	f = payloadFields("frame", b)
	n := f.nextArray(16)
	if kind = f.nextNumber(frameEnd - 1); f.err == nil && n == 0 {
		f.fail("it is empty")
	}
	return kind, f
}

// receiveFrame reads the next frame. The error of a length that no frame has is a [stepvan.ProtocolError].
func receiveFrame(r *bufio.Reader) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n == 0 || n > maxFrame {
		return nil, errs.Protocol("frame", 0, "wrong length (got %d, want 1 to %d bytes)", n, maxFrame)
	}
	var b []byte
	for len(b) < int(n) { // what a length promises is not allocated before it comes
		at, part := len(b), min(int(n)-len(b), 64<<10)
		b = slices.Grow(b, part)[:at+part]
		if _, err := io.ReadFull(r, b[at:]); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// frameWriter sends frames. A frame that the socket takes at once is sent by the caller, which saves the wake of
// another goroutine. What it does not take is sent by a goroutine, so that nobody else waits for the other process.
type frameWriter struct {
	conn *net.UnixConn
	raw  syscall.RawConn // nil: it is not available, and the goroutine sends everything
	mu   sync.Mutex
	wake *sync.Cond
	// +checklocks:mu
	queue []frame
	// +checklocks:mu
	writes bool // the goroutine sends a frame
	// +checklocks:mu
	closed bool
}

func newFrameWriter(conn *net.UnixConn) *frameWriter {
	w := &frameWriter{conn: conn}
	w.wake = sync.NewCond(&w.mu)
	w.raw, _ = conn.SyscallConn()
	return w
}

// send sends a frame, or puts it into the queue. Its file is a copy, which is closed once it is sent. It does not wait.
func (w *frameWriter) send(f frame) {
	binary.LittleEndian.PutUint32(f.b, uint32(len(f.b)-4))
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		f.close()
		return
	}
	if f.fd < 0 && len(w.queue) == 0 && !w.writes && w.raw != nil {
		if f.b = f.b[w.sendAtOnce(f.b):]; len(f.b) == 0 {
			return
		}
	}
	w.queue = append(w.queue, f)
	w.wake.Broadcast()
}

// sendAtOnce sends what the socket takes at once, and returns how many bytes that is. The goroutine finds the error of
// a socket that takes nothing.
func (w *frameWriter) sendAtOnce(b []byte) (n int) {
	_ = w.raw.Write(func(fd uintptr) bool {
		n, _ = sys.Send(int(fd), b)
		return true
	})
	return max(n, 0)
}

// maxUnsent is how many frames may wait for a client that does not read. Its commands wait then.
const maxUnsent = 1024

// awaitRoom waits until the other process has read most frames.
func (w *frameWriter) awaitRoom() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.queue) > maxUnsent && !w.closed {
		w.wake.Wait()
	}
}

// run sends frames until close.
func (w *frameWriter) run() {
	for {
		f, ok := w.next()
		if !ok {
			return
		}
		err := f.write(w.conn)
		if f.close(); err != nil {
			w.close()
			return
		}
	}
}

func (w *frameWriter) next() (frame, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writes = false
	for len(w.queue) == 0 {
		if w.closed {
			return frame{}, false
		}
		w.wake.Wait()
	}
	f := w.queue[0]
	w.queue, w.writes = w.queue[1:], true
	w.wake.Broadcast()
	return f, true
}

// close drops what was not sent.
func (w *frameWriter) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for _, f := range w.queue {
		f.close()
	}
	w.queue = nil
	w.wake.Broadcast()
}

func (f *frame) write(conn *net.UnixConn) error {
	b := f.b
	if f.fd >= 0 {
		n, _, err := conn.WriteMsgUnix(b, unix.UnixRights(f.fd), nil)
		if err != nil {
			return err
		}
		b = b[n:]
	}
	if len(b) == 0 {
		return nil
	}
	_, err := conn.Write(b)
	return err
}

func (f *frame) close() {
	if f.fd >= 0 {
		_ = unix.Close(f.fd)
		f.fd = -1
	}
}

// fileReader reads from a socket, and keeps the files that come with the bytes, in their order.
type fileReader struct {
	conn  *net.UnixConn
	files []int
	oob   [128]byte
}

// Read implements io.Reader.
func (r *fileReader) Read(b []byte) (int, error) {
	n, oob, _, _, err := r.conn.ReadMsgUnix(b, r.oob[:])
	r.files = append(r.files, sys.Rights(r.oob[:oob])...)
	if err == nil && n == 0 && len(b) > 0 {
		return 0, io.EOF
	}
	return max(n, 0), err // -1 with some errors
}

// file takes the next file. It returns -1 for none.
func (r *fileReader) file() int {
	if len(r.files) == 0 {
		return -1
	}
	fd := r.files[0]
	r.files = r.files[1:]
	return fd
}

func (r *fileReader) close() {
	sys.CloseAll(r.files)
	r.files = nil
}
