package bus

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/tinylib/msgp/msgp"
	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/shm"
	"github.com/stepvan/stepvan/tensor"
)

// remote is the session of a client whose agent is in another process.
type remote struct {
	path  string
	conn  *net.UnixConn
	w     *frameWriter
	r     *fileReader
	queue int
	over  chan struct{} // closed when nothing more can come
	heard atomic.Uint64 // frames that have come

	mu sync.Mutex
	// +checklocks:mu
	failed error
	// +checklocks:mu
	open map[string]func(result)
	// +checklocks:mu
	room chan struct{} // closed when a command completes; nil when nobody waits
	// +checklocks:mu
	calls map[uint64]chan allocation
	// +checklocks:mu
	last uint64
	// +checklocks:mu
	memories map[uint64]*window
}

// allocation is the answer to a call for memory.
type allocation struct {
	number uint64
	offset int64
	fd     int
	err    error
}

// window is memory of the agent that this process sees.
type window struct {
	memory *shm.Memory
	bytes  []byte
}

// Dial connects a client to an agent of another process of this user, which listens at a path. ctx limits how long that
// takes.
func Dial(ctx context.Context, path string, o ClientOptions) (*Client, error) {
	if o.Silence < 0 {
		return nil, errs.Invalid("client: silence: it is negative (got %v): give a time, or 0 for %v", o.Silence, defaultSilence)
	}
	r, err := dial(ctx, path, o.Rank)
	if err != nil {
		return nil, fmt.Errorf("client: agent at %s: %w", path, err)
	}
	go r.watch(cmp.Or(o.Silence, defaultSilence))
	return newClient(r), nil
}

// dialPause is the time between two attempts to reach an agent that does not listen yet.
const dialPause = 20 * time.Millisecond

func dial(ctx context.Context, path string, rank int) (*remote, error) {
	if rank < -1 || rank >= maxWorld {
		return nil, errs.Invalid("rank: out of range (got %d, want 0 to %d, or -1): give the rank in the job", rank, maxWorld-1)
	}
	conn, err := reach(ctx, path)
	if err != nil {
		return nil, err
	}
	r := &remote{
		path: path, conn: conn, w: newFrameWriter(conn), r: &fileReader{conn: conn}, over: make(chan struct{}),
		open: map[string]func(result){}, calls: map[uint64]chan allocation{}, memories: map[uint64]*window{},
	}
	go r.w.run()
	hello := msgp.AppendUint64(beginFrame(frameHello, 2), frameVersion)
	r.w.send(frame{msgp.AppendUint64(hello, uint64(rank+1)), -1})
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	in := bufio.NewReader(r.r)
	b, err := receiveFrame(in)
	if !stop() {
		err = errs.Late("it does not answer: if it was stopped, have it continue, or start another one", ctx.Err())
	}
	if err == nil {
		err = r.welcome(b)
	}
	if err != nil {
		r.w.close()
		_ = conn.Close()
		return nil, err
	}
	go r.receive(in)
	return r, nil
}

// reach connects to the socket, which an agent that starts may not have yet.
func reach(ctx context.Context, path string) (*net.UnixConn, error) {
	short, release, err := shm.SocketPath(path)
	if err != nil {
		return nil, err
	}
	defer release()
	for {
		conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: short, Net: "unix"})
		if err == nil {
			return conn, nil
		}
		select {
		case <-time.After(dialPause):
		case <-ctx.Done():
			return nil, fmt.Errorf("there is no agent: start one with stepvan agent: %w: %w", err, errs.Late("gave up", ctx.Err()))
		}
	}
}

func (r *remote) welcome(b []byte) error {
	kind, f := readFrame(b)
	version := f.nextNumber(math.MaxUint32)
	r.queue = int(f.nextNumber(math.MaxInt32))
	if f.endValue(); f.err == nil && (kind != frameHello || version != frameVersion) {
		f.fail("not the hello of an agent (got frame %d of version %d, want %d of version %d)", kind, version, frameHello, frameVersion)
	}
	return f.err
}

// receive handles what the agent sends, until one side ends.
func (r *remote) receive(in *bufio.Reader) {
	err := r.follow(in)
	r.end(&stepvan.OpError{Op: "tensor bus", Peer: "agent at " + r.path, Err: fmt.Errorf("it has ended (%w): start it again: %w", err, stepvan.ErrPeerLost)})
	r.r.close()
	r.w.close()
	_ = r.conn.Close()
	close(r.over)
}

func (r *remote) follow(in *bufio.Reader) error {
	for {
		b, err := receiveFrame(in)
		if err != nil {
			return err
		}
		r.heard.Add(1)
		kind, f := readFrame(b)
		switch kind {
		case frameCompletion:
			if name, res := decodeCompletion(f); f.err == nil {
				r.complete(name, res)
			}
		case frameMemory:
			call, why := f.nextNumber(math.MaxUint64), f.failure().err()
			x := allocation{number: f.nextNumber(math.MaxUint64), offset: int64(f.nextNumber(math.MaxInt64)), fd: -1, err: why}
			if why == nil {
				x.fd = r.r.file()
			}
			r.allocated(call, x)
		default:
			f.fail("unknown kind %d", kind)
		}
		if f.err != nil {
			return f.err
		}
	}
}

// end fails everything. The first error stays.
func (r *remote) end(err error) {
	r.mu.Lock()
	if r.failed == nil {
		r.failed = err
	}
	err = r.failed
	open, calls := r.open, r.calls
	r.open, r.calls = map[string]func(result){}, map[uint64]chan allocation{}
	if r.room != nil {
		close(r.room)
		r.room = nil
	}
	r.mu.Unlock()
	for _, done := range open {
		done(result{err: err})
	}
	for _, c := range calls {
		c <- allocation{fd: -1, err: err}
	}
}

// begin implements transport.
func (r *remote) begin(e envelope, done func(result)) error {
	b, err := Encode(e.command)
	if err != nil {
		done(result{err: err})
		return nil
	}
	name := e.command.Base().Semaphore
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.failed != nil:
		return r.failed
	case len(r.open) >= r.queue:
		return fmt.Errorf("%s: %d commands of this client have not completed: wait for one: %w", e.command.Name(), len(r.open), stepvan.ErrWouldBlock)
	case r.open[name] != nil:
		return errs.Invalid("%s: semaphore_name: a command with this name has not completed (got %q): use a name once", e.command.Name(), name)
	}
	r.open[name] = done
	r.w.send(commandFrame(name, e.role, e.patience, b))
	return nil
}

func (r *remote) complete(name string, res result) {
	r.mu.Lock()
	done := r.open[name]
	delete(r.open, name)
	if r.room != nil {
		close(r.room)
		r.room = nil
	}
	r.mu.Unlock()
	if done != nil {
		done(res)
	}
}

// awaitRoom implements transport.
func (r *remote) awaitRoom() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	room := r.room
	if room == nil {
		room = make(chan struct{})
		if len(r.open) < r.queue || r.failed != nil {
			close(room)
		} else {
			r.room = room
		}
	}
	return room
}

// abandon implements transport.
func (r *remote) abandon(name string, why error) {
	late := uint64(0)
	if errors.Is(why, context.DeadlineExceeded) {
		late = 1
	}
	r.w.send(frame{msgp.AppendUint64(msgp.AppendString(beginFrame(frameAbandon, 2), name), late), -1})
}

// empty implements transport: it asks the agent for memory, and maps it.
func (r *remote) empty(ctx context.Context, d tensor.DType, shape tensor.Shape) (tensor.Tensor, error) {
	n, ok := shape.Bytes(d)
	if !ok || n == 0 {
		return tensor.Tensor{}, errs.Invalid("a tensor %s%s has no memory", d, shape)
	}
	answer := make(chan allocation, 1)
	r.mu.Lock()
	err := r.failed
	r.last++
	call := r.last
	if err == nil {
		r.calls[call] = answer
		r.w.send(frame{msgp.AppendUint64(msgp.AppendUint64(beginFrame(frameAllocate, 2), call), uint64(n)), -1})
	}
	r.mu.Unlock()
	if err != nil {
		return tensor.Tensor{}, err
	}
	select {
	case x := <-answer:
		return r.mapMemory(x, d, shape, n)
	case <-ctx.Done():
		return tensor.Tensor{}, errs.Late("the agent gives no memory", ctx.Err())
	}
}

// allocated hands an answer to its call. A call that nobody waits for gives the memory back.
func (r *remote) allocated(call uint64, x allocation) {
	r.mu.Lock()
	c := r.calls[call]
	delete(r.calls, call)
	r.mu.Unlock()
	if c == nil {
		f := frame{fd: x.fd}
		f.close()
		return
	}
	c <- x
}

// mapMemory maps memory of the agent.
func (r *remote) mapMemory(x allocation, d tensor.DType, shape tensor.Shape, n int64) (t tensor.Tensor, err error) {
	if x.err != nil {
		return t, x.err
	}
	if x.fd < 0 {
		return t, errs.Protocol("frame", 0, "the agent sends no file with its memory")
	}
	defer unix.Close(x.fd)
	var st unix.Stat_t
	if err := unix.Fstat(x.fd, &st); err != nil {
		return t, err
	}
	m, err := shm.Map(x.fd, st.Size)
	if err != nil {
		return t, err
	}
	if x.offset < 0 || x.offset > st.Size || n > st.Size-x.offset {
		return t, errors.Join(errs.Protocol("frame", 0, "memory of %d bytes at %d leaves its file of %d", n, x.offset, st.Size), m.Close())
	}
	b := m.Bytes()[x.offset:][:n]
	if t, err = tensor.FromPointer(unsafe.Pointer(unsafe.SliceData(b)), d, shape, m); err != nil {
		return t, errors.Join(err, m.Close())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.memories[x.number] = &window{m, b}
	return t, nil
}

// place implements transport.
func (r *remote) place(v *tensor.Strided) (h TensorHandle, release func(), err error) {
	m := v.Memory()
	r.mu.Lock()
	defer r.mu.Unlock()
	at := m.Address()
	for number, w := range r.memories {
		base := uintptr(unsafe.Pointer(unsafe.SliceData(w.bytes)))
		if at >= base && at+uintptr(m.Len()) <= base+uintptr(len(w.bytes)) {
			return TensorHandle{Memory: number, Offset: int64(at - base)}, func() {}, nil
		}
	}
	return h, nil, errs.Invalid("its memory is not shared with the agent: take it from Client.Empty")
}

// free implements transport. The caller has closed the region of the tensor.
func (r *remote) free(t *tensor.Tensor) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := t.Address()
	for number, w := range r.memories {
		if uintptr(unsafe.Pointer(unsafe.SliceData(w.bytes))) == at {
			if err := t.Region().Close(); err != nil {
				return err
			}
			delete(r.memories, number)
			r.w.send(frame{msgp.AppendUint64(beginFrame(frameFree, 1), number), -1})
			return w.memory.Close()
		}
	}
	return errs.Invalid("the tensor is not one of Client.Empty")
}

// close implements transport.
func (r *remote) close(ctx context.Context, why error) error {
	r.mu.Lock()
	if r.failed == nil {
		r.failed = why
	}
	r.mu.Unlock()
	r.end(why)
	_ = r.conn.CloseWrite()
	select {
	case <-r.over:
		return nil
	case <-ctx.Done():
		_ = r.conn.Close()
		return errs.Late("client: the agent still uses its memory: close it again", ctx.Err())
	}
}
