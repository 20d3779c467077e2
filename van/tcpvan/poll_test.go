package tcpvan

import (
	"bytes"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

// readable reports whether FD says that there is something to poll.
func (p *party) readable(t *testing.T) bool {
	t.Helper()
	fds := []unix.PollFd{{Fd: int32(p.FD()), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, 0)
		if err != unix.EINTR {
			require.NoError(t, err)
			return n > 0
		}
	}
}

// settle polls until there is nothing, after which the caller may sleep on FD.
func (p *party) settle() {
	for p.poll(true) > 0 || !p.Arm() {
	}
}

// What makes FD readable once Arm has returned true. Whatever arrives through
// a socket is awaited on FD by every other test.
func TestFDTellsWhatTheSocketsDoNot(t *testing.T) {
	a, b := newParty(t, Options{}), newParty(t, Options{Credits: 1})
	out, in := connect(t, a, b, "127.0.0.1:0")

	a.settle()
	require.False(t, a.readable(t))
	large := make([]byte, directBound+1)
	out.(*endpoint).w.bypassed.Store(bypassBound)
	require.NoError(t, out.Send(message(1, 0, large)))
	require.True(t, a.readable(t), "Send completed by itself")
	a.settle()
	require.False(t, a.readable(t))

	require.NoError(t, out.Send(message(2, 0)))
	first := expect(t, van.EventMessage, b)
	b.settle()
	require.False(t, b.readable(t))
	first.Delivery.Release()
	require.True(t, b.readable(t), "Release lets a stalled endpoint go on")
	expect(t, van.EventMessage, b).Delivery.Release()

	in.(*endpoint).w.bypassed.Store(bypassBound)
	require.NoError(t, in.Send(message(3, 0, large)))
	b.settle()
	b.got = nil
	in.(*endpoint).w.bypassed.Store(bypassBound)
	require.NoError(t, in.Send(message(4, 0, large)))
	require.True(t, b.readable(t))
	require.NoError(t, in.Close())
	require.Equal(t, van.OpID(4), expect(t, van.EventCompletion, b).Op)
}

// With less room than there are events nothing is lost, and FD stays readable.
func TestFewEvents(t *testing.T) {
	a, b := newParty(t, Options{}), newParty(t, Options{})
	bound, err := b.Listen("127.0.0.1:0")
	require.NoError(t, err)
	for range 4 {
		out, err := a.Dial(t.Context(), bound)
		require.NoError(t, err)
		for op := range 3 {
			require.NoError(t, out.Send(message(van.OpID(op), 0)))
		}
	}
	count := map[van.EventKind]int{}
	var one [1]van.Event
	until(t, "all events, one by one", func() bool {
		for b.Poll(one[:], true) > 0 {
			count[one[0].Kind]++
			if one[0].Kind == van.EventMessage {
				one[0].Delivery.Release()
			}
		}
		return count[van.EventMessage] == 12
	}, &party{tcpVan: newParty(t, Options{}).tcpVan}, a)
	require.Equal(t, 4, count[van.EventAccepted])
}

// Two callers of Poll are a mistake that costs the second one its events only.
func TestPollIsExclusive(t *testing.T) {
	a, b := newParty(t, Options{}), newParty(t, Options{})
	out, _ := connect(t, a, b, "127.0.0.1:0")
	inside := -1
	b.memory.hook = func(van.Endpoint) { inside = b.Poll(make([]van.Event, 1), true) }
	require.NoError(t, out.Send(message(1, 0, make([]byte, defaultInMessage+1))))
	expect(t, van.EventMessage, b, a).Delivery.Release()
	require.Zero(t, inside)
}

// Poll(false) alone is enough for endpoints that nobody expects anything from.
func TestPollOfTheActiveFindsTheOthers(t *testing.T) {
	a, b := newParty(t, Options{}), newParty(t, Options{})
	busy, _ := connect(t, a, b, "127.0.0.1:0")
	quiet, in := connect(t, a, b, "127.0.0.1:0")
	require.NoError(t, busy.Send(message(1, 0)))
	expect(t, van.EventMessage, b, a).Delivery.Release()
	require.NoError(t, quiet.Send(message(2, 0)))
	for range 1 << 20 {
		if b.poll(false) > 0 {
			break
		}
	}
	require.Len(t, b.got, 1)
	require.Equal(t, in, b.got[0].Endpoint)
}

// Endpoints that always have something do not keep Poll(false) from finding the others.
func TestBusyEndpointsDoNotStarveOthers(t *testing.T) {
	for _, busy := range []int{1, 2, 5} {
		b := newParty(t, Options{})
		stream := flat(message(1, 0))
		raw := make([]int, busy+1)
		for i := range raw {
			raw[i] = adopt(t, b)
		}
		quiet := raw[busy]
		turn := func() {
			for _, fd := range raw[:busy] {
				_, err := unix.Write(fd, stream)
				require.NoError(t, err)
			}
			b.poll(false)
			for _, e := range b.got {
				e.Delivery.Release()
			}
		}
		for range 100 {
			turn()
			b.got = b.got[:0]
		}
		_, err := unix.Write(quiet, flat(message(2, 0)))
		require.NoError(t, err)
		heard := func(e van.Event) bool { return e.Delivery.Header.Request == 2 }
		for turns := 0; !slices.ContainsFunc(b.got, heard); turns++ {
			require.Less(t, turns, 2*askAfterCalls, "with %d busy endpoints", busy)
			turn()
		}
		for _, fd := range raw {
			require.NoError(t, unix.Close(fd))
		}
	}
}

// With fewer places for events than endpoints that have one, each has its turn.
func TestFewEventsGoRound(t *testing.T) {
	b := newParty(t, Options{})
	stream := flat(message(1, 0))
	count := map[van.Endpoint]int{}
	var raw []int
	for range 10 {
		raw = append(raw, adopt(t, b))
	}
	write := func() {
		for _, fd := range raw {
			_, err := unix.Write(fd, stream)
			require.NoError(t, err)
		}
	}
	write()
	var few [3]van.Event
	for range 40 {
		for _, e := range few[:b.Poll(few[:], true)] {
			count[e.Endpoint]++
			e.Delivery.Release()
		}
		write() // more comes than is taken
	}
	for _, n := range count {
		require.InDelta(t, 12, n, 2, "of 40 calls for 3 events each")
	}
	require.Len(t, count, 10)
	for _, fd := range raw {
		require.NoError(t, unix.Close(fd))
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(list)
}

// The van gives every descriptor back, whichever side ends the connection and however far it came.
func TestNoDescriptorLeaks(t *testing.T) {
	cycle := func() {
		o := Options{Rails: 2, Placer: &memory{}}
		va, err := New(o)
		require.NoError(t, err)
		vb, err := New(o)
		require.NoError(t, err)
		a, b := &party{tcpVan: va.(*tcpVan)}, &party{tcpVan: vb.(*tcpVan)}
		for _, addr := range []string{"127.0.0.1:0", "unix:@" + t.Name()} {
			first, in := connect(t, a, b, addr)
			second, _ := dial(t, a, b, b.listeners[len(b.listeners)-1].addr.String())
			require.NoError(t, in.Close())
			require.Equal(t, first, expect(t, van.EventLost, a, b).Endpoint)
			require.NoError(t, second.Close())
			expect(t, van.EventLost, b, a)
			_, err = b.Listen(b.listeners[0].addr.String())
			require.Error(t, err)
		}
		dial(t, a, b, b.listeners[0].addr.String())
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		require.NoError(t, err)
		require.NoError(t, unix.Connect(fd, &unix.SockaddrUnix{Name: "@" + t.Name()}))
		for len(b.pending.list) == 0 {
			b.poll(true)
		}
		require.NoError(t, va.Close())
		require.NoError(t, vb.Close())
		require.NoError(t, unix.Close(fd))
		require.NoError(t, vb.Close())
	}
	cycle() // what Go opens once stays open
	before := openFiles(t)
	for range 5 {
		cycle()
	}
	require.Equal(t, before, openFiles(t))
}

// While descriptors have run out, connections wait; then they are accepted.
func TestOutOfDescriptors(t *testing.T) {
	var starved []error
	a, b := newParty(t, Options{}), newParty(t, Options{Starved: func(err error) { starved = append(starved, err) }})
	bound, err := b.Listen("127.0.0.1:0")
	require.NoError(t, err)
	out, err := a.Dial(t.Context(), bound)
	require.NoError(t, err)
	openFiles(t) // Go opens here what it needs for the calls below

	var old unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
	none := old
	none.Cur = 3
	require.NoError(t, syscall.Setrlimit(unix.RLIMIT_NOFILE, (*syscall.Rlimit)(&none)))
	b.poll(true)
	n := len(b.got)
	_, failed := New(Options{Placer: &memory{}})
	require.NoError(t, syscall.Setrlimit(unix.RLIMIT_NOFILE, (*syscall.Rlimit)(&old)))

	require.Zero(t, n)
	require.ErrorIs(t, failed, unix.EMFILE)
	require.ErrorContains(t, failed, "ulimit -n")
	require.Len(t, starved, 1)
	require.ErrorIs(t, starved[0], unix.EMFILE)
	require.ErrorContains(t, starved[0], "all 3 files that this process may have open are in use: raise the limit (ulimit -n)")
	in := expect(t, van.EventAccepted, b).Endpoint
	talk(t, a, b, out, in)
}

// ledger is a Placer that remembers all it gave.
type ledger struct {
	mu      sync.Mutex
	given   [][]byte
	started chan struct{}
}

func (l *ledger) Place(_ van.Endpoint, h *wire.Header, _ []byte, dst [][]byte) ([][]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := make([]byte, h.Payload)
	l.given = append(l.given, b)
	if len(l.given) == 3 {
		close(l.started)
	}
	return append(dst, b), nil
}

// Close may come at any time: nothing is written to placed memory afterwards.
func TestCloseDuringTraffic(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:0", "unix:@" + t.Name()} {
		for range 4 {
			closeDuringTraffic(t, addr)
		}
	}
}

func closeDuringTraffic(t *testing.T, addr string) {
	a := newParty(t, Options{Rails: 2, RailThreshold: 10_000})
	l := &ledger{started: make(chan struct{})}
	v, err := New(Options{Placer: l})
	require.NoError(t, err)
	b := &party{tcpVan: v.(*tcpVan)}
	out, in := connect(t, a, b, addr)

	var all sync.WaitGroup
	stop := make(chan struct{})
	for _, fn := range []func(){
		func() { _ = out.Send(message(1, 0, make([]byte, 300_000))) },
		func() { a.Poll(a.buf[:], true) },
		func() {
			for _, e := range b.buf[:b.Poll(b.buf[:], false)] {
				if e.Kind == van.EventMessage {
					e.Delivery.Release()
				}
			}
		},
	} {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					fn()
				}
			}
		})
	}
	<-l.started
	require.NoError(t, in.Close())
	l.mu.Lock()
	given := l.given
	l.mu.Unlock()
	for _, b := range given {
		for i := range b {
			b[i] = 0xEE // the messages are all zeros
		}
	}
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
	close(stop)
	all.Wait()
	for _, b := range given {
		require.Equal(t, len(b), bytes.Count(b, []byte{0xEE}), "written after Close")
	}
}

// The driver learns that parts of a message have come, although Poll returns no event for them.
func TestMoved(t *testing.T) {
	b := newParty(t, Options{})
	raw := adopt(t, b)
	b.poll(true)
	require.False(t, b.Moved(), "nothing has come")
	stream := flat(message(1, 5, pattern(100_000, 1)))
	for _, part := range [][]byte{stream[:10], stream[10:50_000], stream[50_000:]} {
		n, err := unix.Write(raw, part)
		require.NoError(t, err)
		require.Equal(t, len(part), n)
		b.poll(true)
		require.True(t, b.Moved())
		for b.Moved() {
			b.poll(true)
		}
	}
	require.Len(t, b.got, 1)
	require.Equal(t, van.EventMessage, b.got[0].Kind)
	b.got[0].Delivery.Release()
	require.NoError(t, unix.Close(raw))
}
