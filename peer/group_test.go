package peer_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/peer"
)

// groupNamed makes a group at some peers.
func groupNamed(t testing.TB, all []*pairtest.PeerOfCluster, name string) []*peer.Group {
	t.Helper()
	ranks := make([]stepvan.Rank, len(all))
	for i, p := range all {
		ranks[i] = p.Rank()
	}
	groups := make([]*peer.Group, len(all))
	for i, p := range all {
		g, err := p.Group(name, ranks)
		require.NoError(t, err)
		groups[i] = g
	}
	return groups
}

// gather has all members gather what mine makes.
func gather(t testing.TB, groups []*peer.Group, mine func(i int) []byte) {
	t.Helper()
	ctx := pairtest.Context(t)
	var wait errgroup.Group
	for i, g := range groups {
		wait.Go(func() error {
			have, err := g.AllGather(ctx, mine(i))
			if err != nil {
				return err
			}
			for k := range groups {
				if !bytes.Equal(have[k], mine(k)) {
					return fmt.Errorf("member %d has other bytes of member %d", i, k)
				}
			}
			return g.Barrier(ctx)
		})
	}
	require.NoError(t, wait.Wait())
}

// A group that is made anew after a failure has nothing to do with the one before, although it has the same name. It
// reads none of the letters that are left, and no failure of the old one ends it.
func TestAGroupMadeAnew(t *testing.T) {
	eachVan(t, func(t *testing.T, v pairtest.Van) {
		all := pairtest.NewPeers(t, pairtest.Options{Van: v}, 3)
		for round := range 5 {
			groups := groupNamed(t, all, "again")
			gather(t, groups, func(i int) []byte { return bytes.Repeat([]byte{byte(i), byte(round)}, 1000*i) })
			groups = groupNamed(t, all, "again")
			short, cancel := context.WithCancel(context.Background())
			var wait errgroup.Group
			for i, g := range groups[:2] { // the third does not come
				wait.Go(func() error {
					_, err := g.AllGather(short, []byte(fmt.Sprint("old ", i)))
					return err
				})
			}
			mail(t, all[0], all[2]) // behind the first letters
			cancel()
			require.Error(t, wait.Wait())
			for _, g := range groups {
				require.Error(t, g.Barrier(pairtest.Context(t)), "it is over at all members")
			}
		}
	})
}

// A member may fail in a group that another one has not made so far. That one learns it as soon as it makes the group.
func TestAGroupThatHasFailedBeforeItIsMade(t *testing.T) {
	all := pairtest.NewPeers(t, pairtest.Options{}, 2)
	ranks := []stepvan.Rank{0, 1}
	for range 2 {
		gather(t, groupNamed(t, all, "early"), func(i int) []byte { return []byte{byte(i)} })
		g, err := all[0].Group("early", ranks)
		require.NoError(t, err)
		over, cancel := context.WithCancel(context.Background())
		cancel()
		require.Error(t, g.Barrier(over))
		mail(t, all[0], all[1]) // behind the letters
		late, err := all[1].Group("early", ranks)
		require.NoError(t, err)
		require.ErrorIs(t, late.Barrier(pairtest.Context(t)), stepvan.ErrRemote)
	}
	gather(t, groupNamed(t, all[:1], "early"), func(i int) []byte { return []byte{byte(i)} }) // other ranks, another group
}

// mail waits until a transfer has come, and with it what was sent before.
func mail(t testing.TB, from, to *pairtest.PeerOfCluster) {
	t.Helper()
	src, dst := filled(t, from, heap, 100_000, 1), empty(t, to, heap, 100_000)
	send, err := from.Send(src.Strided(), to.Rank(), 3)
	require.NoError(t, err)
	recv, err := to.Recv(dst.Strided(), from.Rank(), 3)
	require.NoError(t, err)
	require.NoError(t, recv.Wait(pairtest.Context(t)))
	require.NoError(t, send.Wait(pairtest.Context(t)))
}

// Members that leave when a barrier has ended for them do not fail it for others, which still are in it.
func TestMembersLeaveBehindABarrier(t *testing.T) {
	eachVan(t, func(t *testing.T, v pairtest.Van) {
		for range 10 {
			all := pairtest.NewPeers(t, pairtest.Options{Van: v}, 5)
			for _, p := range all { // what waits for a connection does not go out when its sender leaves
				require.NoError(t, p.Connect(pairtest.Context(t), 0, 1, 2, 3, 4))
			}
			groups := groupNamed(t, all, "last")
			var wait errgroup.Group
			for i, g := range groups {
				wait.Go(func() error {
					have, err := g.AllGather(pairtest.Context(t), []byte{byte(i)})
					if err == nil && len(have) != 5 {
						err = errors.New("bytes are missing")
					}
					if err == nil {
						err = g.Barrier(pairtest.Context(t))
					}
					return errors.Join(err, all[i].Transport.Close())
				})
			}
			require.NoError(t, wait.Wait())
		}
	})
}

// A member may leave before it takes part, and another one may never take part because of that. The rest is told.
func TestAMemberLeavesBeforeABarrier(t *testing.T) {
	for _, early := range []bool{false, true} { // the wait begins before or after that
		all := pairtest.NewPeers(t, pairtest.Options{}, 4)
		for _, p := range all {
			require.NoError(t, p.Connect(pairtest.Context(t), 0, 1, 2, 3))
		}
		groups := groupNamed(t, all, "made")
		ended := make(chan error, 1)
		enter := func() { ended <- groups[2].Barrier(t.Context()) } // it waits for peer 1
		if !early {
			go enter()
		}
		require.NoError(t, all[3].Transport.Close())
		if early {
			for ctx := pairtest.Context(t); len(all[2].Transport.Sessions()) > 2; {
				require.NoError(t, ctx.Err())
				runtime.Gosched()
			}
			go enter()
		}
		select {
		case err := <-ended:
			require.ErrorIs(t, err, stepvan.ErrPeerLost)
			require.ErrorContains(t, err, "peer 3")
		case <-time.After(pairtest.WaitLimit):
			t.Fatal("it hangs")
		}
	}
}

// What is too large for a letter is an error, and does not hang.
func TestALetterThatIsTooLarge(t *testing.T) {
	all := pairtest.NewPeers(t, pairtest.Options{Link: func(o *link.Options) {
		o.Limits.Meta, o.Limits.Message, o.Limits.Tensors = 1<<16, 100_000, 100
	}}, 2)
	groups := groupNamed(t, all, "large")
	gather(t, groups, func(int) []byte { return make([]byte, 99_000) })
	var wait errgroup.Group
	failed := make([]error, 2)
	for i, g := range groups {
		wait.Go(func() error {
			_, failed[i] = g.AllGather(pairtest.Context(t), make([]byte, i*100_000))
			return nil
		})
	}
	require.NoError(t, wait.Wait())
	require.ErrorIs(t, failed[1], stepvan.ErrInvalid)
	require.ErrorContains(t, failed[1], "give fewer at once")
	require.ErrorIs(t, failed[0], stepvan.ErrRemote)

	var moves []peer.Move
	x := filled(t, all[0], heap, 10_000, 1)
	for i := range int64(10_000) {
		moves = append(moves, peer.Move{ID: uint64(i), Peer: 1, View: columns(t, x, 10_000, i, 1)})
	}
	_, err := all[0].Plan(pairtest.Context(t), "large", moves, nil)
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	require.ErrorContains(t, err, "plan large")
}

// Connections that are lost during the operations of groups end them at all members, or do nothing to them. Nobody
// waits for what got lost.
func TestConnectionsLostDuringOperationsOfGroups(t *testing.T) {
	eachVan(t, func(t *testing.T, v pairtest.Van) {
		const size, rounds = 3, 20
		all := pairtest.NewPeers(t, pairtest.Options{Van: v}, size)
		ctx, cancel := context.WithCancel(context.Background())
		var wait sync.WaitGroup
		wait.Go(func() {
			r := rand.New(rand.NewPCG(7, 8))
			for ctx.Err() == nil {
				for range r.IntN(5000) {
					_ = all[0].Rank()
				}
				for _, s := range all[r.IntN(size)].Transport.Sessions() {
					s.Drop(stepvan.ErrPeerLost)
				}
			}
		})
		defer wait.Wait()
		defer cancel()
		for round := range rounds {
			short, end := context.WithTimeout(ctx, pairtest.WaitLimit)
			groups := groupNamed(t, all, fmt.Sprint("round ", round))
			errs := atAll(groups, func(_ int, g *peer.Group) (err error) {
				for range 5 {
					err = cmp.Or(err, g.Barrier(short))
				}
				return err
			})
			for i, err := range errs {
				require.NotErrorIs(t, err, context.DeadlineExceeded, "round %d: peer %d hangs", round, i)
			}
			end()
		}
	})
}

// A peer remembers the names of its groups, so they have a limit. Names that it knows are free.
func TestNamesOfGroupsHaveALimit(t *testing.T) {
	p := pairtest.NewPeers(t, pairtest.Options{}, 2)[0]
	var last *peer.Group
	for i := range 1 << 16 {
		g, err := p.Group(fmt.Sprint("name ", i), []stepvan.Rank{0})
		require.NoError(t, err)
		last = g
	}
	for _, ranks := range [][]stepvan.Rank{{0}, {0, 1}} {
		_, err := p.Group("one more", ranks)
		require.ErrorIs(t, err, stepvan.ErrInvalid)
		require.ErrorContains(t, err, "got 65537, want at most 65536): use a name again")
	}
	for range 2 {
		g, err := p.Group("name 7", []stepvan.Rank{0})
		require.NoError(t, err)
		require.NoError(t, g.Barrier(pairtest.Context(t)))
	}
	last.Forget()
	_, err := p.Group("one more", []stepvan.Rank{0})
	require.NoError(t, err)
}

// A group that is forgotten leaves nothing, and forgets no later one. What others tell of it takes no room of groups
// that are to come.
func TestForgottenGroups(t *testing.T) {
	all := pairtest.NewPeers(t, pairtest.Options{}, 2)
	over, cancel := context.WithCancel(context.Background())
	cancel()
	old := groupNamed(t, all, "again")
	gather(t, old, func(i int) []byte { return []byte{byte(i)} })
	again := groupNamed(t, all, "again")
	for _, g := range old {
		g.Forget()
	}
	gather(t, again, func(i int) []byte { return []byte{byte(i)} })
	for i := range 1100 { // more than the failures that a peer remembers
		g, err := all[0].Group(fmt.Sprint("once ", i), []stepvan.Rank{0, 1})
		require.NoError(t, err)
		require.Error(t, g.Barrier(over)) // the other member never makes it
		g.Forget()
	}
	g, err := all[0].Group("last", []stepvan.Rank{0, 1})
	require.NoError(t, err)
	require.Error(t, g.Barrier(over))
	mail(t, all[0], all[1]) // behind the letters
	late, err := all[1].Group("last", []stepvan.Rank{0, 1})
	require.NoError(t, err)
	require.ErrorIs(t, late.Barrier(pairtest.Context(t)), stepvan.ErrRemote)
}
