package bus

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/tinylib/msgp/msgp"
	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/shm"
	"github.com/stepvan/stepvan/internal/sys"
	"github.com/stepvan/stepvan/tensor"
)

// SocketPath is where the agent with a rank listens by default, in the cluster whose scheduler has this port. No other
// user may enter the folder.
func SocketPath(port int, rank stepvan.Rank) string {
	return filepath.Join(shm.SocketDir(), fmt.Sprintf("bus-%d-%d.sock", port, rank))
}

// Listener takes clients in other processes of this user, until it or its agent is closed.
type Listener struct {
	a    *Agent
	sock *net.UnixListener
	path string

	closing sync.Once
	closed  error
}

// Listen has the agent take clients at a Unix socket, whose folder no other user may enter. The
// agent needs [Options.Memory], since the tensors of these clients lie there.
func (a *Agent) Listen(path string) (*Listener, error) {
	if a.opt.Memory == nil {
		return nil, errs.Invalid("agent: listen: it has no memory for clients: set Options.Memory")
	}
	if err := shm.PrivateDir(filepath.Dir(path)); err != nil {
		return nil, errs.Invalid("agent: listen at %s: %v", path, err)
	}
	defer shm.HoldSweep(filepath.Dir(path))()
	if shm.Abandoned(path) {
		_ = os.Remove(path) // of an agent that was killed
	}
	short, release, err := shm.SocketPath(path)
	if err != nil {
		return nil, fmt.Errorf("agent: listen: %w", err)
	}
	defer release()
	sock, err := net.ListenUnix("unix", &net.UnixAddr{Name: short, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("agent: listen at %s: %w", path, err)
	}
	sock.SetUnlinkOnClose(false) // short may lead elsewhere later
	l := &Listener{a: a, sock: sock, path: path}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over != nil {
		return nil, errors.Join(a.over, l.Close())
	}
	a.listeners = append(a.listeners, l)
	a.spawn(l.accept)
	return l, nil
}

// Path is where clients find the agent.
func (l *Listener) Path() string { return l.path }

// Close ends the listener. Clients that it has taken stay.
func (l *Listener) Close() error {
	l.closing.Do(func() {
		_ = os.Remove(l.path)
		l.closed = l.sock.Close()
	})
	return l.closed
}

// acceptPause is how long the listener waits when the process has no descriptors left.
const acceptPause = 100 * time.Millisecond

func (l *Listener) accept() {
	for {
		conn, err := l.sock.AcceptUnix()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			l.a.opt.Log.Error().Err(errs.Descriptors(err)).Msg("the agent cannot take a client")
			select {
			case <-time.After(acceptPause):
			case <-l.a.ctx.Done():
				return
			}
		default:
			l.a.mu.Lock()
			l.a.spawn(func() { l.a.serve(conn) })
			l.a.mu.Unlock()
		}
	}
}

// guest is a client behind a socket, at its agent.
type guest struct {
	s       *session
	here    bool // it is in this process
	w       *frameWriter
	regions map[uint64]*tensor.Region // that it has, by the number of the memory
}

// helloTime is how long a process may take to say that it is a client.
const helloTime = 5 * time.Second

// serve serves a client until one side ends.
func (a *Agent) serve(conn *net.UnixConn) {
	defer func() { _ = conn.Close() }()
	r := bufio.NewReader(conn)
	_ = conn.SetReadDeadline(time.Now().Add(helloTime))
	s, here, err := a.admit(conn, r)
	if err != nil {
		a.opt.Log.Error().Err(err).Msg("the agent refuses a client")
		return
	}
	_ = conn.SetReadDeadline(time.Time{})
	g := &guest{s: s, here: here, w: newFrameWriter(conn), regions: map[uint64]*tensor.Region{}}
	go g.w.run()
	hello := msgp.AppendUint64(beginFrame(frameHello, 2), frameVersion)
	g.w.send(frame{msgp.AppendUint64(hello, uint64(a.opt.Queue)), -1})
	go func() {
		<-s.ctx.Done() // the agent was closed
		_ = conn.SetReadDeadline(time.Unix(1, 0))
	}()
	err = g.read(r)
	if err != nil && !errors.Is(err, io.EOF) && s.ctx.Err() == nil {
		a.opt.Log.Error().Err(err).Msg("the connection with a client has ended")
	}
	_ = s.close(a.ctx, errClosedClient) // it gives up when the agent is closed
	for _, region := range g.regions {
		_ = region.Close()
	}
	g.w.close()
}

// admit reads the hello of a client. here says that it is in this process.
func (a *Agent) admit(conn *net.UnixConn, r *bufio.Reader) (s *session, here bool, err error) {
	var cred *unix.Ucred
	err = sys.Control(conn, func(fd int) { cred, _ = unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err != nil || cred == nil || int(cred.Uid) != os.Getuid() {
		return nil, false, errs.Invalid("client: it is a process of another user, or its user is not known")
	}
	b, err := receiveFrame(r)
	if err != nil {
		return nil, false, err
	}
	kind, f := readFrame(b)
	version, rank := f.nextNumber(math.MaxUint32), int(f.nextNumber(maxWorld))-1
	if f.endValue(); f.err == nil && (kind != frameHello || version != frameVersion) {
		f.fail("not the hello of a client (got frame %d of version %d, want %d of version %d)", kind, version, frameHello, frameVersion)
	}
	if f.err != nil {
		return nil, false, f.err
	}
	s, err = a.connect(rank)
	return s, int(cred.Pid) == os.Getpid(), err
}

// read follows the frames of a client.
func (g *guest) read(r *bufio.Reader) error {
	for {
		b, err := receiveFrame(r)
		if err != nil {
			return err
		}
		kind, f := readFrame(b)
		switch kind {
		case frameCommand:
			g.command(f, r.Buffered() > 0)
		case frameAbandon:
			name, why := f.nextText(), context.Canceled
			if f.nextNumber(1) == 1 {
				why = context.DeadlineExceeded
			}
			g.s.abandon(name, why)
		case frameAllocate:
			g.allocate(f.nextNumber(math.MaxUint64), f.nextNumber(math.MaxInt64))
		case frameFree:
			g.free(f.nextNumber(math.MaxUint64))
		case frameLend:
			g.lend(f.nextNumber(math.MaxUint64), f.nextNumber(math.MaxInt64), f.nextNumber(math.MaxInt64))
		default:
			f.fail("unknown kind %d", kind)
		}
		if f.err != nil {
			return f.err
		}
		g.w.awaitRoom()
	}
}

// driveTime is how long the goroutine that reads the commands of a client drives a round. So another goroutine wakes
// only for rounds that take longer. A command that comes meanwhile waits so long.
const driveTime = 500 * time.Microsecond

// command begins a command. Whatever it is, its completion has an answer. more says that other commands have come.
func (g *guest) command(f *fields, more bool) {
	name, role := f.nextText(), f.nextText()
	patience := time.Duration(f.nextNumber(math.MaxInt64))
	b := f.nextBytes()
	if f.err != nil {
		return
	}
	command, err := Decode(b)
	if err == nil && command.Base().Semaphore != name {
		err = errs.Invalid("%s: semaphore_name: it differs from that of the frame (got %.80q, want %.80q)", command.Name(), command.Base().Semaphore, name)
	}
	done := func(r result) { g.w.send(frame{encodeCompletion(name, r), -1}) }
	if err == nil {
		e := envelope{command: command, role: role, patience: patience, within: driveTime}
		if more {
			e.within = 0
		}
		err = g.s.begin(e, done)
	}
	if err != nil {
		done(result{err: err})
	}
}

func encodeCompletion(name string, r result) []byte {
	b := msgp.AppendString(beginFrame(frameCompletion, 10), name)
	b = failureOf(r.err).append(b)
	b = msgp.AppendString(b, string(r.status.State))
	b = msgp.AppendUint64(b, r.status.Round)
	b = failureOf(r.status.Err).append(b)
	signal := uint64(0)
	if r.status.Signal {
		signal = 1
	}
	return msgp.AppendUint64(b, signal)
}

func decodeCompletion(f *fields) (name string, r result) {
	name = f.nextText()
	r.err = f.failure().err()
	r.status.State = BatchState(f.nextText())
	r.status.Round = f.nextNumber(math.MaxUint64)
	r.status.Err = f.failure().err()
	r.status.Signal = f.nextNumber(1) == 1
	f.endValue()
	return name, r
}

// allocate gives the client memory: a file that holds nothing else.
func (g *guest) allocate(call, n uint64) {
	number, fd, offset, err := g.newRegion(int64(n))
	g.w.send(frame{encodeMemory(call, number, offset, err), fd})
}

func encodeMemory(call, number uint64, offset int64, err error) []byte {
	b := msgp.AppendUint64(beginFrame(frameMemory, 6), call)
	b = msgp.AppendUint64(failureOf(err).append(b), number)
	return msgp.AppendUint64(b, uint64(offset))
}

// lend notes memory of a client in this process. The client keeps it until its batches have ended, and its session.
func (g *guest) lend(call, address, n uint64) {
	number, err := uint64(0), errs.Invalid("agent: the client is in another process: take the memory from the agent")
	if g.here {
		number, err = g.s.memories.lend(uintptr(address), int64(n))
	}
	g.w.send(frame{encodeMemory(call, number, 0, err), -1})
}

func (g *guest) newRegion(n int64) (number uint64, fd int, offset int64, err error) {
	region, err := g.s.a.opt.Memory.AllocFile(int(n))
	if err != nil {
		return 0, -1, 0, err
	}
	file, offset, ok := region.FD()
	if !ok {
		_ = region.Close()
		return 0, -1, 0, fmt.Errorf("agent: the system gives no memory files: %w", stepvan.ErrNotSupported)
	}
	if fd, err = unix.FcntlInt(uintptr(file), unix.F_DUPFD_CLOEXEC, 0); err != nil {
		_ = region.Close()
		return 0, -1, 0, errs.Descriptors(err)
	}
	t, err := tensor.FromRegion(region, 0, tensor.Uint8, tensor.ShapeOf(n))
	if err == nil {
		number, err = g.s.memories.share(t)
	}
	if err != nil {
		_ = unix.Close(fd)
		_ = region.Close()
		return 0, -1, 0, err
	}
	g.regions[number] = region
	return number, fd, offset, nil
}

// free takes memory back. Memory that a batch uses stays until the end of the client.
func (g *guest) free(number uint64) {
	g.s.memories.unshare(number)
	if region := g.regions[number]; region != nil && region.Close() == nil {
		delete(g.regions, number)
	}
}
