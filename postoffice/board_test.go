package postoffice

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
)

// texts reads "key=value of worker 0".
func texts(entries []Entry) []string {
	out := []string{}
	for _, e := range entries {
		out = append(out, fmt.Sprintf("%s=%s of %s", e.Key, e.Value, e.Owner.Name()))
	}
	return out
}

// entries wants a number of them.
func entries(n int) func([]Entry) bool { return func(all []Entry) bool { return len(all) == n } }

// watch watches in the background; the channel has the entries as texts, or the error.
func (n *node) watch(ctx context.Context, prefix string, until func([]Entry) bool) chan error {
	done := make(chan error, 1)
	go func() {
		_, err := n.Board().Watch(ctx, prefix, until)
		done <- err
	}()
	return done
}

func TestBoard(t *testing.T) {
	inCluster(t, SchedulerOptions{Workers: 1, Servers: 1, Peers: 2}, func(t *testing.T, c *cluster) {
		c.started()
		p0, p1, w := c.find(stepvan.RolePeer, 0).Board(), c.find(stepvan.RolePeer, 1).Board(), c.find(stepvan.RoleWorker, 0).Board()
		all, err := p0.Watch(t.Context(), "", nil)
		require.NoError(t, err)
		require.Empty(t, all)

		require.NoError(t, p1.Post(t.Context(), "job/b", []byte("1")))
		require.NoError(t, p0.Post(t.Context(), "job/a", []byte("2")))
		require.NoError(t, w.Post(t.Context(), "other", nil))
		require.NoError(t, c.s.Board().Post(t.Context(), "job/", []byte{0xff, 0}))
		all, err = w.Watch(t.Context(), "job/", nil)
		require.NoError(t, err)
		require.Equal(t, []string{"job/b=1 of peer 1", "job/a=2 of peer 0", "job/=\xff\x00 of scheduler"}, texts(all), "in the order of their posts")
		require.Equal(t, []uint64{1, 2, 4}, []uint64{all[0].Order, all[1].Order, all[2].Order})
		require.Equal(t, c.find(stepvan.RolePeer, 1).Self().ID, all[0].Owner.ID)

		require.NoError(t, p1.Post(t.Context(), "job/b", []byte("3")), "a node replaces its own")
		require.NoError(t, p0.Remove(t.Context(), "job/a"))
		all, err = c.s.Board().Watch(t.Context(), "job/", nil)
		require.NoError(t, err)
		require.Equal(t, []string{"job/b=3 of peer 1", "job/=\xff\x00 of scheduler"}, texts(all), "it keeps its place")
		require.EqualValues(t, 1, all[0].Order)
		require.NoError(t, p0.Post(t.Context(), "job/a", []byte("4")))
		all, err = p0.Watch(t.Context(), "job/a", entries(1))
		require.NoError(t, err)
		require.EqualValues(t, 6, all[0].Order, "it is a new one")

		require.NoError(t, p0.Post(t.Context(), "job/a", []byte("5")))
		require.ErrorIs(t, p0.RemoveValue(t.Context(), "job/a", []byte("4")), stepvan.ErrRemote, "it has another value")
		require.ErrorIs(t, p1.RemoveValue(t.Context(), "job/a", []byte("5")), stepvan.ErrRemote, "it is of another node")
		all, err = p0.Watch(t.Context(), "job/a", nil)
		require.NoError(t, err)
		require.Equal(t, []string{"job/a=5 of peer 0"}, texts(all))
		require.NoError(t, p0.RemoveValue(t.Context(), "job/a", []byte("5")))
		require.NoError(t, p0.Post(t.Context(), "job/a", nil))
		require.ErrorIs(t, p0.RemoveValue(t.Context(), "job/a", []byte("5")), stepvan.ErrRemote, "the value is empty")
		require.NoError(t, p0.RemoveValue(t.Context(), "job/a", nil))
		all, err = p0.Watch(t.Context(), "job/a", nil)
		require.NoError(t, err)
		require.Empty(t, all)
	})
}

func TestAKeyBelongsToOneNode(t *testing.T) {
	inCluster(t, SchedulerOptions{Workers: 1, Servers: 1, Peers: 1}, func(t *testing.T, c *cluster) {
		c.started()
		require.NoError(t, c.find(stepvan.RoleWorker, 0).Board().Post(t.Context(), "leader", []byte("me")))
		other := c.find(stepvan.RolePeer, 0).Board()
		for what, err := range map[string]error{
			`post "leader"`: other.Post(t.Context(), "leader", nil), `remove "leader"`: other.Remove(t.Context(), "leader"),
		} {
			var op *stepvan.OpError
			require.ErrorAs(t, err, &op)
			require.Equal(t, []string{what, "worker 0"}, []string{op.Op, op.Peer})
			require.ErrorIs(t, err, stepvan.ErrRemote)
			require.ErrorContains(t, err, `key "leader": it belongs to worker 0 (host h, pid 101): choose another key`)
		}
		require.ErrorContains(t, c.s.Board().Post(t.Context(), "leader", nil), "it belongs to worker 0")
		err := other.Remove(t.Context(), "leaders")
		require.ErrorIs(t, err, stepvan.ErrRemote)
		require.ErrorContains(t, err, `key "leaders": there is no such entry`)
		all, err := other.Watch(t.Context(), "", nil)
		require.NoError(t, err)
		require.Equal(t, []string{"leader=me of worker 0"}, texts(all))
	})
}

// A watch is told of what comes, changes and goes, and sees no state in between.
func TestAWatchFollowsChanges(t *testing.T) {
	inCluster(t, SchedulerOptions{Peers: 2}, func(t *testing.T, c *cluster) {
		c.started()
		p, watcher := c.find(stepvan.RolePeer, 0).Board(), c.find(stepvan.RolePeer, 1)
		var seen []string
		done := watcher.watch(t.Context(), "a", func(all []Entry) bool {
			seen = append(seen, strings.Join(texts(all), " "))
			return len(all) > 0 && string(all[0].Value) == "end"
		})
		c.pending(done)
		step := func(err error) {
			t.Helper()
			require.NoError(t, err)
			time.Sleep(2 * gather)
			synctest.Wait()
		}
		step(p.Post(t.Context(), "a1", []byte("x")))
		step(p.Post(t.Context(), "b", []byte("y")))
		step(p.Post(t.Context(), "a2", []byte("z")))
		step(p.Remove(t.Context(), "a1"))
		require.NoError(t, p.Post(t.Context(), "a3", nil))
		step(p.Remove(t.Context(), "a3"))
		step(p.Post(t.Context(), "a2", []byte("end")))
		require.NoError(t, <-done)
		require.Equal(t, []string{"", "a1=x of peer 0", "a1=x of peer 0 a2=z of peer 0", "a2=z of peer 0", "a2=z of peer 0", "a2=end of peer 0"},
			slices.DeleteFunc(seen, func(s string) bool { return strings.Contains(s, "a3") }))
	})
}

// Changes that follow each other quickly come together.
func TestABurstCostsFewMessages(t *testing.T) {
	inCluster(t, SchedulerOptions{Peers: 2}, func(t *testing.T, c *cluster) {
		c.started()
		p, watcher := c.find(stepvan.RolePeer, 0).Board(), c.find(stepvan.RolePeer, 1)
		calls := 0
		done := watcher.watch(t.Context(), "", func(all []Entry) bool { calls++; return len(all) == 500 })
		for i := range 500 {
			require.NoError(t, p.Post(t.Context(), fmt.Sprint(i), nil))
		}
		require.NoError(t, <-done)
		require.Less(t, calls, 10)
	})
}

func TestEntriesGoWithTheirNode(t *testing.T) {
	for name, end := range map[string]func(*node){
		"dies":   func(n *node) { n.pipe.cut() },
		"leaves": func(n *node) { n.pipe.finish("done") },
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, SchedulerOptions{Peers: 3}, func(t *testing.T, c *cluster) {
				c.started()
				victim, other := c.find(stepvan.RolePeer, 1), c.find(stepvan.RolePeer, 0)
				for i := range 20 {
					require.NoError(t, victim.Board().Post(t.Context(), fmt.Sprint("v", i), nil))
				}
				require.NoError(t, other.Board().Post(t.Context(), "mine", nil))
				watched := victim.watch(t.Context(), "nothing", entries(1))
				all := other.watch(t.Context(), "", entries(21))
				require.NoError(t, <-all)
				gone := other.watch(t.Context(), "", entries(1))
				c.pending(gone, watched)
				end(victim)
				require.NoError(t, <-gone)
				require.Error(t, <-watched)
				require.NoError(t, other.Board().Post(t.Context(), "v3", nil), "the key is free")
				c.s.lock()
				defer c.s.unlock()
				require.Empty(t, c.s.keeper.watches)
			})
		})
	}
}

// An entry stays while its node waits in Stop.
func TestEntriesOfANodeThatStops(t *testing.T) {
	inCluster(t, SchedulerOptions{Peers: 2}, func(t *testing.T, c *cluster) {
		c.started()
		a, b := c.find(stepvan.RolePeer, 0), c.find(stepvan.RolePeer, 1)
		require.NoError(t, a.Board().Post(t.Context(), "a", nil))
		watch := a.watch(t.Context(), "b", entries(1))
		c.pending(watch)
		stopped := make(chan error, 1)
		go func() { stopped <- a.Stop(t.Context()) }()
		require.ErrorIs(t, <-watch, stepvan.ErrClosed)
		require.ErrorIs(t, a.Board().Post(t.Context(), "a", nil), stepvan.ErrClosed)
		require.ErrorContains(t, a.Board().Remove(t.Context(), "a"), "this node has stopped")
		require.NoError(t, <-b.watch(t.Context(), "a", entries(1)))
		require.NoError(t, b.Stop(t.Context()))
		require.NoError(t, <-stopped)
	})
}

func TestTheBoardEndsWithTheScheduler(t *testing.T) {
	inCluster(t, SchedulerOptions{Peers: 1}, func(t *testing.T, c *cluster) {
		c.started()
		p := c.find(stepvan.RolePeer, 0)
		watch := p.watch(t.Context(), "", entries(1))
		c.pending(watch)
		p.pipe.silence() // a post waits
		post := make(chan error, 1)
		go func() { post <- p.Board().Post(t.Context(), "a", nil) }()
		c.pending(watch, post)
		p.pipe.cut()
		for _, err := range []error{<-watch, <-post, p.Board().Post(t.Context(), "a", nil), p.Board().Remove(t.Context(), "a")} {
			requireLost(t, err, "scheduler (mem://scheduler)")
		}
	})
}

func TestBoardCallsThatGiveUp(t *testing.T) {
	inCluster(t, SchedulerOptions{Peers: 1}, func(t *testing.T, c *cluster) {
		early := c.office(stepvan.RolePeer, 0, nil)
		require.ErrorIs(t, early.Board().Post(t.Context(), "a", nil), stepvan.ErrInvalid)
		_, err := early.Board().Watch(t.Context(), "a", nil)
		require.ErrorContains(t, err, "this node has not joined the cluster: join it first")
		c.nodes = nil
		c.started()
		p := c.find(stepvan.RolePeer, 0)
		_, err = p.Board().Watch(within(time.Second), "a", entries(1))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, `watch "a": `)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, p.Board().Post(gone, "a", nil), context.Canceled)
		_, err = p.Board().Watch(gone, "a", nil)
		require.ErrorIs(t, err, context.Canceled)
		p.pipe.silence()
		require.ErrorIs(t, p.Board().Post(within(time.Second), "b", nil), context.DeadlineExceeded)
		p.pipe.speak()
		all, err := p.Board().Watch(t.Context(), "", nil)
		require.NoError(t, err)
		require.Empty(t, all)
		synctest.Wait()
		c.s.lock()
		defer c.s.unlock()
		require.Empty(t, c.s.keeper.watches, "no watch is left behind")
		require.Empty(t, p.board.open)
	})
}

func TestWhatIsNoEntry(t *testing.T) {
	inCluster(t, SchedulerOptions{Peers: 1}, func(t *testing.T, c *cluster) {
		c.started()
		p := c.find(stepvan.RolePeer, 0)
		b := p.Board()
		long := strings.Repeat("k", MaxKey)
		require.NoError(t, b.Post(t.Context(), long, make([]byte, MaxValue)))
		require.NoError(t, b.Post(t.Context(), `"\<ü>`, nil))
		for what, err := range map[string]error{
			"empty":     b.Post(t.Context(), "", nil),
			"long":      b.Post(t.Context(), long+"k", nil),
			"control":   b.Remove(t.Context(), "a\n"),
			"not UTF-8": b.Post(t.Context(), "a\xff", nil),
			"value":     b.Post(t.Context(), "a", make([]byte, MaxValue+1)),
		} {
			require.ErrorIs(t, err, stepvan.ErrInvalid, what)
		}
		_, err := b.Watch(t.Context(), long+"k", nil)
		require.ErrorIs(t, err, stepvan.ErrInvalid)
		require.ErrorContains(t, err, "want")
		all, err := b.Watch(t.Context(), "", nil)
		require.NoError(t, err)
		require.Len(t, all, 2)
	})
}

func TestANodeHasSoManyWatches(t *testing.T) {
	inCluster(t, SchedulerOptions{Peers: 1}, func(t *testing.T, c *cluster) {
		c.started()
		p := c.find(stepvan.RolePeer, 0)
		var open []chan error
		for range maxWatches {
			open = append(open, p.watch(t.Context(), "a", entries(1)))
		}
		c.pending(open...)
		_, err := p.Board().Watch(t.Context(), "", nil)
		require.ErrorIs(t, err, stepvan.ErrRemote)
		require.ErrorContains(t, err, "this node has 64 watches")
		require.NoError(t, p.Board().Post(t.Context(), "a", nil))
		for _, w := range open {
			require.NoError(t, <-w)
		}
		_, err = p.Board().Watch(t.Context(), "", nil)
		require.NoError(t, err)
	})
}
