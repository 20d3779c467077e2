package postoffice

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/link/progress"
	"github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/tensor"
)

// live is a cluster over real links.
type live struct {
	t       testing.TB
	mem     *tensor.Allocator
	van     pairtest.Van
	o       SchedulerOptions
	guests  int // link.Options.Visitors
	s       *Scheduler
	node    *link.Transport
	addrs   []string
	offices []*Office
	nodes   []*link.Transport

	dead chan string // the name of the dead node, once per node that hears of the death
}

func newLive(t testing.TB, v pairtest.Van, o SchedulerOptions) *live {
	t.Helper()
	return newVisited(t, v, o, 0)
}

// newVisited is newLive with a bound for visitors of the scheduler.
func newVisited(t testing.TB, v pairtest.Van, o SchedulerOptions, visitors int) *live {
	t.Helper()
	mem, err := tensor.NewAllocator(tensor.Options{Name: "live"})
	require.NoError(t, err)
	l := &live{t: t, mem: mem, van: v, o: o, guests: visitors, dead: make(chan string, 4096)}
	t.Cleanup(l.end)
	l.o.Shared = testShared
	l.node = l.link("scheduler", func(id link.Identity) error { return l.s.Admit(id) })
	l.s, err = NewScheduler(l.node, l.o)
	require.NoError(t, err)
	l.addrs = l.listen(l.node, "scheduler")
	return l
}

// end closes everything, however the test ended.
func (l *live) end() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var all sync.WaitGroup
	for i, n := range l.nodes {
		all.Go(func() {
			_ = l.offices[i].Stop(ctx)
			_ = n.Close()
		})
	}
	all.Wait()
	_ = l.s.Stop(ctx)
	require.NoError(l.t, l.node.Close())
	require.NoError(l.t, l.mem.Close())
}

func (l *live) link(name string, admit func(link.Identity) error) *link.Transport {
	l.t.Helper()
	n, err := link.NewTransport(link.Options{
		Vans: []link.VanMaker{l.van.Maker(name, l.mem)}, Memory: l.mem, Admit: admit, Visitors: l.guests,
		Progress: progress.Options{Mode: progress.Park}, Log: zerolog.Nop(),
	})
	require.NoError(l.t, err)
	return n
}

func (l *live) listen(n *link.Transport, name string) []string {
	l.t.Helper()
	bound, err := n.Listen(l.van.Addr(name))
	require.NoError(l.t, err)
	return bound
}

// add makes a node that has not joined, and what joins it.
func (l *live) add(role stepvan.Role, rank stepvan.Rank) (*Office, func(context.Context) error) {
	l.t.Helper()
	name := fmt.Sprintf("%s-%d-%d", role, rank, len(l.nodes))
	var f *Office
	n := l.link(name, func(id link.Identity) error { return f.Admit(id) })
	f, err := NewOffice(n, OfficeOptions{
		Role: role, Rank: rank, Instance: AnyLocalRank, Options: Options{
			GroupSize: l.o.GroupSize, Shared: testShared,
			HeartbeatInterval: l.o.HeartbeatInterval, HeartbeatTimeout: l.o.HeartbeatTimeout, Log: zerolog.Nop(),
		},
		OnDead: func(i Peer, _ error) { l.dead <- i.Name() },
	})
	require.NoError(l.t, err)
	l.nodes, l.offices = append(l.nodes, n), append(l.offices, f)
	var own []string
	if role == stepvan.RoleServer {
		own = l.listen(n, name)
	}
	return f, func(ctx context.Context) error { return f.Join(ctx, l.addrs, own) }
}

// start joins everybody.
func (l *live) start(ctx context.Context) {
	l.t.Helper()
	var joins []func(context.Context) error
	for role, size := range l.o.sizes() {
		for r := range size {
			_, join := l.add(role, stepvan.Rank(r))
			joins = append(joins, join)
		}
	}
	l.all(func(i int) error { return joins[i](ctx) })
	require.NoError(l.t, l.s.Start(ctx))
}

// all calls f for every office at once.
func (l *live) all(f func(i int) error) {
	l.t.Helper()
	failed := make([]error, len(l.offices))
	var wg sync.WaitGroup
	for i := range l.offices {
		wg.Go(func() { failed[i] = f(i) })
	}
	wg.Wait()
	for i, err := range failed {
		require.NoError(l.t, err, "%s", l.offices[i].Self())
	}
}

// limited bounds every wait of these tests: reached only when something hangs.
func limited(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func overVans(t *testing.T, f func(t *testing.T, v pairtest.Van)) {
	for _, v := range []pairtest.Van{pairtest.Mem(), pairtest.TCP()} {
		t.Run(v.Name, func(t *testing.T) { f(t, v) })
	}
}

// patient heartbeats survive a machine that does something else for a while.
var patient = SchedulerOptions{Workers: 4, Servers: 2, Options: Options{GroupSize: 2, HeartbeatInterval: 100 * time.Millisecond, HeartbeatTimeout: 30 * time.Second}}

func TestLiveCluster(t *testing.T) {
	overVans(t, func(t *testing.T, v pairtest.Van) {
		l := newLive(t, v, patient)
		ctx := limited(t)
		l.start(ctx)
		for i := range 20 {
			l.all(func(j int) error { return l.offices[j].Barrier(ctx, GroupNodes, i%2 == 0) })
		}
		// Workers dial their servers; the link asks Admit on both sides.
		for i, f := range l.offices {
			if f.Self().Role != stepvan.RoleWorker {
				continue
			}
			for _, p := range f.Peers() {
				s, err := l.nodes[i].Dial(ctx, p.Addresses)
				require.NoError(t, err)
				require.NoError(t, f.Admit(s.Peer()))
				require.Equal(t, p.ID, s.Peer().ID)
			}
		}
		// A worker of another index is refused by the server, with the reason.
		worker, server := l.find(stepvan.RoleWorker, 0), l.find(stepvan.RoleServer, 1)
		_, err := l.nodes[worker].Dial(ctx, l.serverAddresses(server))
		require.ErrorIs(t, err, stepvan.ErrRemote)
		require.ErrorContains(t, err, "is not a peer of server 1")

		stopped := make(chan error, 1)
		go func() { stopped <- l.s.Stop(ctx) }()
		l.all(func(j int) error { return l.offices[j].Stop(ctx) })
		require.NoError(t, <-stopped)
		require.Empty(t, l.dead)
	})
}

// meetOnBoard posts an entry of office i, and waits for those of all others.
func (l *live) meetOnBoard(ctx context.Context, i int, value []byte) error {
	b := l.offices[i].Board()
	if err := b.Post(ctx, fmt.Sprintf("meet/%d", i), value); err != nil {
		return err
	}
	all, err := b.Watch(ctx, "meet/", func(all []Entry) bool { return len(all) == len(l.offices) })
	for j, e := range all {
		if e.Order != uint64(j+1) || !bytes.Equal(e.Value, value) {
			return fmt.Errorf("entry %d is %+v", j, e)
		}
	}
	return err
}

func TestLiveBoard(t *testing.T) {
	overVans(t, func(t *testing.T, v pairtest.Van) {
		l := newLive(t, v, patient)
		ctx := limited(t)
		l.start(ctx)
		value := make([]byte, MaxValue)
		for i := range value {
			value[i] = byte(i)
		}
		l.all(func(i int) error { return l.meetOnBoard(ctx, i, value) })
		l.all(func(i int) error { return l.offices[i].Board().Remove(ctx, fmt.Sprintf("meet/%d", i)) })
		all, err := l.s.Board().Watch(ctx, "", nil)
		require.NoError(t, err)
		require.Empty(t, all)
		l.all(func(i int) error { return l.offices[i].Stop(ctx) })
		require.NoError(t, l.s.Stop(ctx))
	})
}

func (l *live) find(role stepvan.Role, rank stepvan.Rank) int {
	for i, f := range l.offices {
		if s := f.Self(); s.Role == role && s.Rank == rank {
			return i
		}
	}
	l.t.Fatalf("no %s %d", role, rank)
	return 0
}

// serverAddresses asks a worker of the server.
func (l *live) serverAddresses(i int) []string {
	id := l.offices[i].Self().ID
	for _, f := range l.offices {
		for _, p := range f.Peers() {
			if p.ID == id {
				return p.Addresses
			}
		}
	}
	return nil
}

func TestLiveRefusal(t *testing.T) {
	overVans(t, func(t *testing.T, v pairtest.Van) {
		l := newLive(t, v, SchedulerOptions{Workers: 2})
		ctx := limited(t)
		_, first := l.add(stepvan.RoleWorker, 0)
		done := make(chan error, 1)
		go func() { done <- first(ctx) }()
		for len(l.s.Peers()) == 0 {
			time.Sleep(time.Millisecond)
		}
		_, second := l.add(stepvan.RoleWorker, 0)
		err := second(ctx)
		require.ErrorIs(t, err, stepvan.ErrRemote)
		require.ErrorContains(t, err, "worker rank 0 is taken by worker 0")
		_, third := l.add(stepvan.RoleWorker, 1)
		require.NoError(t, third(ctx))
		require.NoError(t, <-done)
	})
}

func TestLiveDeathIsToldToAll(t *testing.T) {
	v := pairtest.WithFaults(pairtest.Mem())
	l := newLive(t, v, SchedulerOptions{Workers: 3, Servers: 1})
	ctx := limited(t)
	l.start(ctx)
	victim := l.find(stepvan.RoleWorker, 1)
	broken := make(chan error, len(l.offices))
	for i, f := range l.offices {
		if i != victim {
			go func() { broken <- f.Barrier(ctx, GroupNodes, true) }()
		}
	}
	name := fmt.Sprintf("worker-1-%d", victim)
	require.True(t, v.Net.Kill(name))
	for range len(l.offices) - 1 {
		requireLost(t, <-broken, "worker 1")
	}
	var stops sync.WaitGroup
	for i, f := range l.offices {
		if i != victim {
			stops.Go(func() { require.NoError(t, f.Stop(ctx)) })
		}
	}
	stops.Wait()
	require.NoError(t, l.s.Stop(ctx))
}

func TestLiveSchedulerDeath(t *testing.T) {
	v := pairtest.WithFaults(pairtest.Mem())
	l := newLive(t, v, SchedulerOptions{Workers: 2, Servers: 1})
	ctx := limited(t)
	l.start(ctx)
	require.True(t, v.Net.Kill("scheduler"))
	for _, f := range l.offices {
		<-f.Done()
		requireLost(t, f.Barrier(ctx, GroupNodes, true), "scheduler (mem://scheduler)")
		requireLost(t, f.Stop(ctx), "scheduler (mem://scheduler)")
	}
	for range l.offices {
		require.Equal(t, "scheduler", <-l.dead)
	}
}

func TestLiveSchedulerNeverAnswers(t *testing.T) {
	l := newLive(t, pairtest.Mem(), SchedulerOptions{Workers: 1})
	f, _ := l.add(stepvan.RoleWorker, 0)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	err := f.Join(ctx, []string{"mem://nowhere"}, nil)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "join with scheduler (mem://nowhere): does not answer: start it, or correct DMLC_PS_ROOT_URI and DMLC_PS_ROOT_PORT")
}
