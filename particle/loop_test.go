package particle_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/internal/race"
	"github.com/stepvan/stepvan/particle"
	"github.com/stepvan/stepvan/tensor"
)

// waitLimit is the limit of every wait. A test reaches it only when something hangs.
const waitLimit = 30 * time.Second

func limited(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	t.Cleanup(cancel)
	return ctx
}

// cluster is some loops of this process, each of a peer of its own.
type cluster struct {
	t     testing.TB
	peers []*pairtest.PeerOfCluster
	loops []*particle.Loop
}

func newCluster(t testing.TB, v pairtest.Van, n int, change func(rank int, o *particle.Options)) *cluster {
	t.Helper()
	c := &cluster{t: t, peers: pairtest.NewPeers(t, pairtest.Options{Van: v}, n)}
	for i, p := range c.peers {
		o := particle.Options{Devices: 2, Memory: p.Memory}
		if change != nil {
			change(i, &o)
		}
		l, err := particle.Open(p.Peer, o)
		require.NoError(t, err)
		c.loops = append(c.loops, l)
	}
	t.Cleanup(c.close)
	return c
}

func (c *cluster) close() {
	for _, l := range c.loops {
		require.NoError(c.t, l.Close(limited(c.t)))
	}
}

// create creates a particle with hooks.
func (c *cluster) create(rank, device int, hooks map[string]particle.Hook) particle.ID {
	c.t.Helper()
	id, f, err := c.loops[0].Create(stepvan.Rank(rank), device)
	require.NoError(c.t, err)
	_, err = f.Wait(limited(c.t))
	require.NoError(c.t, err)
	for name, hook := range hooks {
		require.NoError(c.t, c.loops[rank].Handle(id, name, hook))
	}
	return id
}

// ask sends a message from the first loop, and waits for the result.
func (c *cluster) ask(to particle.ID, message string, data string) (string, error) {
	f, err := c.loops[0].Send(particle.None, to, message, particle.Value{Data: []byte(data)})
	if err != nil {
		return "", err
	}
	v, err := f.Wait(limited(c.t))
	return string(v.Data), err
}

func text(s string) particle.Value { return particle.Value{Data: []byte(s)} }

// echo is a hook that returns its arguments.
func echo(_ *particle.Call, args particle.Value) (particle.Value, error) {
	return particle.Value{Data: args.Data, Tensors: args.Tensors}, nil
}

// passOn is a hook that asks another particle, and returns what that says with something before it.
func passOn(before string, to particle.ID, message string) particle.Hook {
	return func(c *particle.Call, args particle.Value) (particle.Value, error) {
		f, err := c.Send(to, message, args)
		if err != nil {
			return particle.Value{}, err
		}
		if err := c.Wait(c.Context(), f); err != nil {
			return particle.Value{}, err
		}
		v, err := f.Result()
		return text(before + string(v.Data)), err
	}
}

var vans = map[string]func(testing.TB) pairtest.Van{
	"mem": func(testing.TB) pairtest.Van { return pairtest.OneSided() },
	"tcp": func(testing.TB) pairtest.Van { return pairtest.TCP() },
}

func TestMessagesReachTheirParticle(t *testing.T) {
	for name, v := range vans {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, v(t), 2, nil)
			for rank := range 2 {
				id := c.create(rank, rank, map[string]particle.Hook{
					"who": func(x *particle.Call, args particle.Value) (particle.Value, error) {
						return text(fmt.Sprint(x.Particle(), x.From(), x.Name(), string(args.Data))), nil
					},
				})
				got, err := c.ask(id, "who", "!")
				require.NoError(t, err)
				require.Equal(t, fmt.Sprint(rank, -1, "who", "!"), got)
			}
			require.Equal(t, []particle.Place{{Particle: 0, Rank: 0, Device: 0}, {Particle: 1, Rank: 1, Device: 1}}, c.loops[1].Particles())
		})
	}
}

func TestAToBToA(t *testing.T) {
	for _, ranks := range [][2]int{{0, 0}, {0, 1}, {1, 0}} {
		t.Run(fmt.Sprint(ranks), func(t *testing.T) {
			c := newCluster(t, pairtest.Mem(), 2, nil)
			const a, b particle.ID = 0, 1
			c.create(ranks[0], 0, map[string]particle.Hook{"begin": passOn("a", b, "middle"), "end": echo})
			c.create(ranks[1], 0, map[string]particle.Hook{"middle": passOn("b", a, "end")})
			got, err := c.ask(a, "begin", "!")
			require.NoError(t, err)
			require.Equal(t, "ab!", got)
		})
	}
}

func TestTwoOfOneDeviceWaitForEachOther(t *testing.T) {
	c := newCluster(t, pairtest.Mem(), 1, nil)
	ids := [2]particle.ID{0, 1}
	both := make(chan struct{})
	var running atomic.Int32
	askOther := func(other int) particle.Hook {
		return func(x *particle.Call, args particle.Value) (particle.Value, error) {
			if running.Add(1) == 2 {
				close(both) // the second one has the turn while the first one waits
			}
			f, err := x.Send(ids[other], "answer", args)
			if err == nil {
				err = x.Wait(x.Context(), f)
			}
			if err != nil {
				return particle.Value{}, err
			}
			return f.Result()
		}
	}
	block := func(x *particle.Call, args particle.Value) (particle.Value, error) {
		return args, nil
	}
	for i := range ids {
		c.create(0, 0, map[string]particle.Hook{"askOther": askOther(1 - i), "answer": block})
	}
	var fs []*particle.Future
	for i := range ids {
		f, err := c.loops[0].Send(particle.None, ids[i], "askOther", text(fmt.Sprint(i)))
		require.NoError(t, err)
		fs = append(fs, f)
	}
	for i, f := range fs {
		v, err := f.Wait(limited(t))
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint(i), string(v.Data))
	}
	<-both
}

func TestCycleOfThreeOverTwoNodes(t *testing.T) {
	for name, v := range vans {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, v(t), 2, func(_ int, o *particle.Options) { o.Devices = 1 })
			ids := [3]particle.ID{0, 1, 2}
			for i := range ids {
				next := (i + 1) % 3
				c.create(i%2, 0, map[string]particle.Hook{
					"go": func(x *particle.Call, args particle.Value) (particle.Value, error) {
						left := binary.LittleEndian.Uint64(args.Data)
						if left == 0 {
							return args, nil
						}
						f, err := x.Send(ids[next], "go", particle.Value{Data: binary.LittleEndian.AppendUint64(nil, left-1)})
						if err == nil {
							err = x.Wait(x.Context(), f)
						}
						if err != nil {
							return particle.Value{}, err
						}
						return f.Result()
					},
				})
			}
			var fs []*particle.Future
			for i := range 3 {
				for range 10 {
					f, err := c.loops[0].Send(particle.None, ids[i], "go", particle.Value{Data: binary.LittleEndian.AppendUint64(nil, 20)})
					require.NoError(t, err)
					fs = append(fs, f)
				}
			}
			for _, f := range fs {
				v, err := f.Wait(limited(t))
				require.NoError(t, err)
				require.Zero(t, binary.LittleEndian.Uint64(v.Data))
			}
		})
	}
}

func TestHooksOfOneDeviceDoNotOverlap(t *testing.T) {
	c := newCluster(t, pairtest.Mem(), 1, nil)
	var running, most atomic.Int32
	var order []int
	id := c.create(0, 0, map[string]particle.Hook{
		"work": func(_ *particle.Call, args particle.Value) (particle.Value, error) {
			most.Store(max(most.Load(), running.Add(1)))
			order = append(order, int(args.Data[0]))
			running.Add(-1)
			return particle.Value{}, nil
		},
	})
	var fs []*particle.Future
	for i := range 200 {
		f, err := c.loops[0].Send(particle.None, id, "work", particle.Value{Data: []byte{byte(i)}})
		require.NoError(t, err)
		fs = append(fs, f)
	}
	require.NoError(t, c.loops[0].Wait(limited(t), fs...))
	require.EqualValues(t, 1, most.Load())
	for i := range order {
		require.Equal(t, i, order[i])
	}
}

func TestErrorsReachTheCallerAndNothingElse(t *testing.T) {
	for rank := range 2 {
		c := newCluster(t, pairtest.Mem(), 2, nil)
		id := c.create(rank, 0, map[string]particle.Hook{
			"fail": func(*particle.Call, particle.Value) (particle.Value, error) {
				return particle.Value{}, errors.New("line 1\nline 2")
			},
			"panic": func(*particle.Call, particle.Value) (particle.Value, error) { panic("oh") },
			"long": func(*particle.Call, particle.Value) (particle.Value, error) {
				return particle.Value{}, errors.New(strings.Repeat("x", 1<<20) + "the reason")
			},
			"echo": echo,
		})
		var hook *particle.HookError
		_, err := c.ask(id, "fail", "")
		require.ErrorAs(t, err, &hook)
		require.ErrorIs(t, err, stepvan.ErrRemote)
		require.Equal(t, particle.HookError{Particle: id, Message: "fail", Text: "line 1\nline 2"}, *hook)
		_, err = c.ask(id, "panic", "")
		require.ErrorAs(t, err, &hook)
		require.Contains(t, hook.Text, "panic: oh")
		require.Contains(t, hook.Text, "loop_test.go")
		_, err = c.ask(id, "long", "")
		require.ErrorContains(t, err, "the reason")
		_, err = c.ask(id, "nothing", "")
		require.ErrorIs(t, err, stepvan.ErrInvalid)
		require.ErrorContains(t, err, `"nothing"`)
		_, err = c.ask(id+1, "echo", "")
		require.ErrorIs(t, err, stepvan.ErrInvalid)
		got, err := c.ask(id, "echo", "still")
		require.NoError(t, err)
		require.Equal(t, "still", got)
	}
}

func TestFuturesMayBeWaitedForAgain(t *testing.T) {
	c := newCluster(t, pairtest.Mem(), 2, nil)
	release := make(chan struct{})
	id := c.create(1, 0, map[string]particle.Hook{
		"slow": func(_ *particle.Call, args particle.Value) (particle.Value, error) {
			<-release
			return args, nil
		},
	})
	f, err := c.loops[0].Send(particle.None, id, "slow", text("x"))
	require.NoError(t, err)
	short, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	_, err = f.Wait(short)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "slow")
	require.False(t, f.Done())
	_, err = f.Result()
	require.ErrorIs(t, err, stepvan.ErrBusy)
	notified := make(chan struct{})
	f.Notify(func() { close(notified) })
	close(release)
	var g errgroup.Group
	for range 8 {
		g.Go(func() error {
			v, err := f.Wait(limited(t))
			if err == nil && string(v.Data) != "x" {
				err = errors.New("another value")
			}
			return err
		})
	}
	require.NoError(t, g.Wait())
	<-notified
	require.True(t, f.Done())
	f.Forget()
	_, err = f.Result()
	require.ErrorIs(t, err, stepvan.ErrStale)
}

func TestAHookThatWouldWaitForItselfGetsAnError(t *testing.T) {
	c := newCluster(t, pairtest.Mem(), 2, nil)
	var a particle.ID
	var own atomic.Pointer[particle.Future]
	known := make(chan struct{})
	onOwn := func(x *particle.Call, _ particle.Value) (particle.Value, error) {
		<-known
		return particle.Value{}, x.Wait(x.Context(), own.Load())
	}
	for _, rank := range []int{0, 1} {
		known = make(chan struct{})
		a = particle.ID(2 * rank)
		c.create(0, 0, map[string]particle.Hook{"direct": onOwn, "begin": passOn("", a+1, "middle"), "end": onOwn})
		c.create(rank, 1, map[string]particle.Hook{"middle": passOn("", a, "end")})
		for i, message := range []string{"direct", "begin"} {
			if i > 0 {
				known = make(chan struct{})
			}
			f, err := c.loops[0].Send(particle.None, a, message, particle.Value{})
			require.NoError(t, err)
			own.Store(f)
			close(known)
			_, err = f.Wait(limited(t))
			require.ErrorIs(t, err, stepvan.ErrRemote)
			require.ErrorContains(t, err, "it waits for its own result")
		}
	}
}

func TestAHookThatNeverEndsLeavesOtherDevicesAlone(t *testing.T) {
	c := newCluster(t, pairtest.Mem(), 1, nil)
	end := make(chan struct{})
	stuck := c.create(0, 0, map[string]particle.Hook{
		"never": func(*particle.Call, particle.Value) (particle.Value, error) {
			<-end
			return particle.Value{}, nil
		},
	})
	other := c.create(0, 1, map[string]particle.Hook{"echo": echo})
	_, err := c.loops[0].Send(particle.None, stuck, "never", particle.Value{})
	require.NoError(t, err)
	got, err := c.ask(other, "echo", "x")
	require.NoError(t, err)
	require.Equal(t, "x", got)
	short, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	err = c.loops[0].Close(short)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, `"never" of particle 0`)
	close(end)
}

func TestNestingHasALimit(t *testing.T) {
	c := newCluster(t, pairtest.Mem(), 1, nil)
	a := c.create(0, 0, nil)
	require.NoError(t, c.loops[0].Handle(a, "again", passOn("", a, "again")))
	_, err := c.ask(a, "again", "")
	require.ErrorIs(t, err, stepvan.ErrRemote)
	require.ErrorContains(t, err, "nested too deep")
}

func TestTensorsTravelBesideTheBytes(t *testing.T) {
	for name, v := range vans {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, v(t), 2, nil)
			ids := []particle.ID{c.create(0, 0, map[string]particle.Hook{"echo": echo}), c.create(1, 0, map[string]particle.Hook{"echo": echo})}
			for _, id := range ids {
				for _, n := range []int{0, 3, 1000, 300_000} {
					x := make([]float32, 2*n)
					for i := range x {
						x[i] = float32(i)
					}
					whole, err := tensor.FromSlice(x, int64(n), 2)
					require.NoError(t, err)
					second := whole.Strided()
					second, err = second.Narrow(1, 1, 1) // with gaps
					require.NoError(t, err)
					data := make([]byte, n)
					for i := range data {
						data[i] = byte(i)
					}
					var back atomic.Int32
					for _, lent := range []func(){nil, func() { back.Add(1) }} {
						f, err := c.loops[0].Send(particle.None, id, "echo", particle.Value{Data: data, Tensors: []tensor.Strided{second, whole.Strided()}, Lent: lent})
						require.NoError(t, err)
						v, err := f.Wait(limited(t))
						require.NoError(t, err)
						require.True(t, bytes.Equal(data, v.Data))
						require.Len(t, v.Tensors, 2)
						one, ok := v.Tensors[0].Contiguous()
						require.True(t, ok)
						got, err := tensor.As[float32](one)
						require.NoError(t, err)
						for i := range got {
							if got[i] != x[2*i+1] {
								t.Fatalf("element %d is %v, want %v", i, got[i], x[2*i+1])
							}
						}
						require.Equal(t, []int64{int64(n), 2}, v.Tensors[1].Dims())
						f.Forget()
					}
					require.Eventually(t, func() bool { return back.Load() == 1 }, waitLimit, time.Millisecond)
				}
			}
		})
	}
}

func TestRandomSchedules(t *testing.T) {
	schedules := 1000
	if race.Enabled {
		schedules = 100
	}
	c := newCluster(t, pairtest.Mem(), 2, nil)
	ids := []particle.ID{0, 1, 2, 3, 4, 5}
	walk := func(x *particle.Call, args particle.Value) (particle.Value, error) {
		depth, seed := int(args.Data[0]), binary.LittleEndian.Uint64(args.Data[1:])
		r := rand.New(rand.NewPCG(seed, uint64(depth)))
		count := byte(1)
		if depth > 0 {
			var fs []*particle.Future
			for range 1 + r.IntN(3) {
				f, err := x.Send(ids[r.IntN(len(ids))], "walk", particle.Value{Data: binary.LittleEndian.AppendUint64([]byte{byte(depth - 1)}, r.Uint64())})
				if err != nil {
					return particle.Value{}, err
				}
				if fs = append(fs, f); r.IntN(2) == 0 {
					if err := x.Wait(x.Context(), f); err != nil {
						return particle.Value{}, err
					}
				}
			}
			if err := x.Wait(x.Context(), fs...); err != nil {
				return particle.Value{}, err
			}
			for _, f := range fs {
				v, err := f.Result()
				if err != nil {
					return particle.Value{}, err
				}
				count += v.Data[0]
			}
		}
		return particle.Value{Data: []byte{count}}, nil
	}
	for i := range ids {
		c.create(i%2, i/2%2, map[string]particle.Hook{"walk": walk})
	}
	for s := 0; s < schedules; {
		var g errgroup.Group
		for range 10 {
			seed := uint64(s)
			s++
			g.Go(func() error {
				r := rand.New(rand.NewPCG(seed, 7))
				f, err := c.loops[0].Send(particle.None, ids[r.IntN(len(ids))], "walk", particle.Value{Data: binary.LittleEndian.AppendUint64([]byte{byte(r.IntN(4))}, seed)})
				if err != nil {
					return err
				}
				_, err = f.Wait(limited(t))
				return err
			})
		}
		require.NoError(t, g.Wait())
	}
}

func TestAHookMayEndItsGoroutine(t *testing.T) {
	c := newCluster(t, pairtest.Mem(), 1, nil)
	id := c.create(0, 0, map[string]particle.Hook{"echo": echo, "end": func(*particle.Call, particle.Value) (particle.Value, error) {
		runtime.Goexit()
		return particle.Value{}, nil
	}})
	for range 5 {
		_, err := c.ask(id, "end", "")
		require.ErrorIs(t, err, stepvan.ErrRemote)
		got, err := c.ask(id, "echo", "x")
		require.NoError(t, err)
		require.Equal(t, "x", got)
	}
}

// The n-th loops of all peers belong together, also when one of them is ahead.
func TestALoopMayBeAheadOfOthers(t *testing.T) {
	peers := pairtest.NewPeers(t, pairtest.Options{}, 2)
	open := func(rank int) *particle.Loop {
		l, err := particle.Open(peers[rank].Peer, particle.Options{})
		require.NoError(t, err)
		return l
	}
	behind := open(1)
	for range 3 {
		require.NoError(t, open(0).Close(limited(t)))
	}
	ahead := open(0)
	id, created, err := ahead.Create(1, 0)
	require.NoError(t, err)
	came := make(chan struct{})
	_, err = peers[1].Listen("after it", func(stepvan.Rank, []byte) { close(came) })
	require.NoError(t, err)
	require.NoError(t, peers[0].Mail(1, "after it", nil))
	<-came
	for range 3 {
		require.NoError(t, behind.Close(limited(t)))
		behind = open(1)
	}
	_, err = created.Wait(limited(t))
	require.NoError(t, err)
	require.NoError(t, behind.Handle(id, "echo", echo))
	f, err := ahead.Send(particle.None, id, "echo", text("x"))
	require.NoError(t, err)
	v, err := f.Wait(limited(t))
	require.NoError(t, err)
	require.Equal(t, "x", string(v.Data))
	require.NoError(t, ahead.Close(limited(t)))
	require.NoError(t, behind.Close(limited(t)))
}
