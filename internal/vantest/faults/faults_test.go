package faults_test

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/vantest/faults"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/van"
	"github.com/stepvan/stepvan/van/memvan"
	"github.com/stepvan/stepvan/van/shmvan"
	"github.com/stepvan/stepvan/van/tcpvan"
)

// kind is a van to wrap.
type kind struct {
	name   string
	maker  faults.Maker
	memory func(n int) []byte // that can be granted
	listen string             // a free address
	sound  bool
}

func mem(o memvan.Options) kind {
	net := memvan.NewNetwork()
	return kind{
		name: "mem", listen: ":0",
		memory: func(n int) []byte { return make([]byte, n) },
		maker: func(p van.Placer, wake func()) (van.Van, error) {
			o := o
			o.Placer, o.Wake = p, wake
			return memvan.New(net, o)
		},
	}
}

func tcp() kind {
	return kind{name: "tcp", listen: "127.0.0.1:0", maker: func(p van.Placer, _ func()) (van.Van, error) {
		return tcpvan.New(tcpvan.Options{Placer: p})
	}}
}

func shm(t *testing.T) kind {
	files, err := tensor.NewAllocator(tensor.Options{Name: "faults"})
	require.NoError(t, err)
	dir, err := os.MkdirTemp("", "vf") // short: it leads to sockets
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return kind{
		name: "shm", listen: "", sound: true,
		memory: func(n int) []byte {
			r, err := files.Alloc(n)
			require.NoError(t, err)
			return r.Bytes()
		},
		maker: func(p van.Placer, _ func()) (van.Van, error) {
			return shmvan.New(shmvan.Options{Placer: p, Files: files, Dir: filepath.Join(dir, "s")})
		},
	}
}

// overVans runs f over every van, on a network of its own.
func overVans(t *testing.T, o faults.Options, f func(t *testing.T, net *faults.Network, k kind)) {
	one := mem(memvan.Options{OneSided: true})
	one.name = "one-sided"
	for _, k := range []kind{mem(memvan.Options{}), one, tcp(), shm(t)} {
		t.Run(k.name, func(t *testing.T) { f(t, faults.New(o), k) })
	}
}

// pool places every payload at the start of one buffer.
type pool []byte

func (p pool) Place(_ van.Endpoint, h *wire.Header, _ []byte, dst [][]byte) ([][]byte, error) {
	if h.Payload > uint64(len(p)) {
		return dst, errs.Invalid("no room")
	}
	return append(dst, p[:h.Payload]), nil
}

func noWake() {}

func newVan(t testing.TB, net *faults.Network, k kind, name string, wake func()) van.Van {
	t.Helper()
	v, err := net.Wrap(name, k.maker)(make(pool, 1<<16), wake)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, v.Close()) })
	return v
}

func pair(t testing.TB, net *faults.Network, k kind) (a, b van.Van) {
	t.Helper()
	return newVan(t, net, k, "a", noWake), newVan(t, net, k, "b", noWake)
}

func listen(t testing.TB, v van.Van, k kind) string {
	t.Helper()
	addr, err := v.Listen(k.listen)
	require.NoError(t, err)
	return addr
}

func dial(t testing.TB, v van.Van, addr string) van.Endpoint {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	ep, err := v.Dial(ctx, addr)
	require.NoError(t, err)
	return ep
}

// connect has a dial b.
func connect(t testing.TB, a, b van.Van, k kind) (out, in van.Endpoint) {
	t.Helper()
	out = dial(t, a, listen(t, b, k))
	return out, await(t, b, "A")[0].Endpoint
}

func message(op van.OpID, meta string, payload ...[]byte) *van.Message {
	h := wire.Header{Kind: wire.KindData, Sequence: uint64(op)}
	for _, p := range payload {
		h.Payload += uint64(len(p))
	}
	h.Total = h.Payload
	head := append(make([]byte, wire.HeaderSize), meta...)
	h.Encode(head, head[wire.HeaderSize:])
	return &van.Message{Op: op, Head: head, Payload: payload}
}

// send sends a message and says how often a completion follows.
func send(t testing.TB, ep van.Endpoint, m *van.Message) (completions string) {
	t.Helper()
	require.NoError(t, ep.Send(m))
	if m.Done {
		return ""
	}
	return "C"
}

// bound is the limit of every wait. A test reaches it only when something hangs.
const bound = 20 * time.Second

// await polls v until as many events have come as want has letters, and requires these kinds. It returns copies of the
// deliveries, and leaves EventDetached out, which waits until both sides poll.
func await(t testing.TB, v van.Van, want string) (found []van.Event) {
	t.Helper()
	kinds := ""
	for end := time.Now().Add(bound); len(kinds) < len(want) && time.Now().Before(end); runtime.Gosched() {
		for _, ev := range poll(v) {
			switch ev.Kind {
			case van.EventDetached:
				continue
			case van.EventMessage:
				d := *ev.Delivery
				d.Meta = slices.Clone(d.Meta)
				ev.Delivery.Release()
				ev.Delivery = &d
			}
			found = append(found, ev)
			kinds += string(" MCAL"[ev.Kind])
		}
	}
	require.Equal(t, want, kinds)
	return found
}

func poll(v van.Van) []van.Event {
	events := make([]van.Event, 256)
	return events[:v.Poll(events, true)]
}

func TestCutReportsLossOnBothSides(t *testing.T) {
	overVans(t, faults.Options{}, func(t *testing.T, net *faults.Network, k kind) {
		a, b := pair(t, net, k)
		out, in := connect(t, a, b, k)
		out.SetUser("a's")
		require.Equal(t, 1, net.Cut("b", "a"))
		require.Equal(t, 0, net.Cut("b", "c"))
		require.ErrorIs(t, out.Send(message(1, "")), stepvan.ErrPeerLost)
		lost := await(t, a, "L")
		require.ErrorIs(t, lost[0].Err, stepvan.ErrPeerLost)
		require.Equal(t, out, lost[0].Endpoint)
		require.Equal(t, "a's", lost[0].Endpoint.User())
		require.Equal(t, in, await(t, b, "L")[0].Endpoint)
		require.Equal(t, 0, net.Cut("a", "b"), "lost connections are forgotten")
	})
}

func TestCutCompletesWhatWasAccepted(t *testing.T) {
	overVans(t, faults.Options{}, func(t *testing.T, net *faults.Network, k kind) {
		a, b := pair(t, net, k)
		connect(t, b, a, k) // another one, which is cut as well
		out, _ := connect(t, a, b, k)
		want := ""
		for i := range van.OpID(20) {
			want += send(t, out, message(i, "meta", make([]byte, 5000)))
		}
		require.Equal(t, 2, net.Cut("a", "b"))
		completed := 0
		seen := map[van.Endpoint]bool{}
		for end := time.Now().Add(bound); len(seen) < 2 && time.Now().Before(end); runtime.Gosched() {
			for _, ev := range poll(a) {
				switch ev.Kind {
				case van.EventCompletion:
					completed++
					if ev.Err != nil {
						require.ErrorIs(t, ev.Err, stepvan.ErrPeerLost)
					}
					require.False(t, seen[ev.Endpoint], "a completion after the loss")
				case van.EventLost:
					require.False(t, seen[ev.Endpoint], "two losses")
					seen[ev.Endpoint] = true
				}
			}
		}
		require.Len(t, seen, 2)
		require.Equal(t, len(want), completed)
	})
}

func TestCloseOfWhatIsCut(t *testing.T) {
	overVans(t, faults.Options{}, func(t *testing.T, net *faults.Network, k kind) {
		a, b := pair(t, net, k)
		out, _ := connect(t, a, b, k)
		require.Equal(t, 1, net.Cut("a", "b"))
		require.NoError(t, out.Close())
		require.ErrorIs(t, out.Send(message(1, "")), stepvan.ErrClosed)
		await(t, b, "L")
		for _, ev := range poll(a) {
			require.Equal(t, van.EventDetached, ev.Kind, "its owner has closed it")
		}
	})
}

func TestPartitionHoldsDialsUntilHeal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, net := mem(memvan.Options{}), faults.New(faults.Options{})
		a, b := pair(t, net, k)
		addr := listen(t, b, k)
		require.Equal(t, 0, net.Partition("a", "b"))
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_, err := a.Dial(ctx, addr)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		go func() {
			time.Sleep(time.Hour)
			net.Heal("a", "b")
		}()
		start := time.Now()
		_, err = a.Dial(context.Background(), addr)
		require.NoError(t, err)
		require.Equal(t, time.Hour, time.Since(start))
	})
}

func TestPartition(t *testing.T) {
	overVans(t, faults.Options{}, func(t *testing.T, net *faults.Network, k kind) {
		a, b := pair(t, net, k)
		addr := listen(t, b, k)
		dial(t, a, addr)
		await(t, b, "A")
		require.Equal(t, 1, net.Partition("b", "a"))
		await(t, a, "L")
		await(t, b, "L")
		dialled := make(chan error)
		go func() {
			_, err := a.Dial(context.Background(), addr)
			dialled <- err
		}()
		dial(t, b, listen(t, b, k)) // others are not concerned
		require.Empty(t, dialled)
		net.Heal("a", "b")
		require.NoError(t, <-dialled)

		net.Partition("a", "b")
		go func() {
			_, err := a.Dial(context.Background(), addr)
			dialled <- err
		}()
		require.NoError(t, a.Close())
		require.ErrorIs(t, <-dialled, stepvan.ErrClosed)
	})
}

func TestKillFreesNameAndAddress(t *testing.T) {
	overVans(t, faults.Options{}, func(t *testing.T, net *faults.Network, k kind) {
		a, b := pair(t, net, k)
		addr := listen(t, b, k)
		dial(t, a, addr)
		await(t, b, "A")
		require.True(t, net.Kill("b"))
		require.False(t, net.Kill("b"))
		await(t, a, "L")
		_, err := b.Listen(k.listen)
		require.ErrorIs(t, err, stepvan.ErrClosed)
		reborn := newVan(t, net, k, "b", noWake)
		_, err = reborn.Listen(addr)
		require.NoError(t, err)
		dial(t, a, addr)
		await(t, reborn, "A")
	})
}

func TestKillFreesViews(t *testing.T) {
	overVans(t, faults.Options{}, func(t *testing.T, net *faults.Network, k kind) {
		a, b := pair(t, net, k)
		if !a.Caps().OneSided {
			return
		}
		x, y := connect(t, a, b, k)
		g, err := y.(van.Granter).Grant(k.memory(1000), 1, van.RightRead)
		require.NoError(t, err)
		send(t, y, message(1, "")) // a knows the grant when it has the message
		v := mapped(t, a, x, g)
		require.True(t, net.Kill("a"))
		for kind := van.EventKind(0); kind != van.EventDetached; runtime.Gosched() {
			for _, ev := range poll(b) {
				kind = ev.Kind
			}
		}
		v.Release()
		require.Empty(t, poll(b))
	})
}

// mapped polls v until the grant of the peer of x can be mapped.
func mapped(t *testing.T, v van.Van, x van.Endpoint, g van.Grant) van.View {
	t.Helper()
	await(t, v, "M")
	view, err := x.(van.Viewer).Map(van.Target{Grant: g.ID, Generation: 1}, 100, van.RightRead)
	require.NoError(t, err)
	return view
}
