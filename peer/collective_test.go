package peer_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/internal/race"
	"github.com/stepvan/stepvan/peer"
	"github.com/stepvan/stepvan/tensor"
)

// membersOf makes a group at its members.
func membersOf(t testing.TB, all []*pairtest.PeerOfCluster, ranks ...stepvan.Rank) []*peer.Group {
	t.Helper()
	groups := make([]*peer.Group, len(ranks))
	for i, rank := range ranks {
		var err error
		groups[i], err = all[rank].Group("g", ranks)
		require.NoError(t, err)
	}
	return groups
}

// atAll calls f for all members at once.
func atAll(groups []*peer.Group, f func(i int, g *peer.Group) error) []error {
	errs := make([]error, len(groups))
	var wait errgroup.Group
	for i, g := range groups {
		wait.Go(func() error {
			errs[i] = f(i, g)
			return nil
		})
	}
	_ = wait.Wait()
	return errs
}

func requireNone(t testing.TB, errs []error) {
	t.Helper()
	for _, err := range errs {
		require.NoError(t, err, "%v", errs)
	}
}

func TestBroadcast(t *testing.T) {
	eachVan(t, func(t *testing.T, v pairtest.Van) {
		all := pairtest.NewPeers(t, pairtest.Options{Van: v}, 4)
		groups := membersOf(t, all, 3, 0, 2)
		r := rand.New(rand.NewPCG(1, 2))
		for i, dims := range [][]int64{{0}, {}, {7}, {100, 30}, {3, race.Fewer[int64](300), 100}} {
			root := i % 3
			views := make([]tensor.Strided, 3)
			for k, g := range groups {
				views[k] = randomView(t, all[g.Ranks()[k]], r, tensor.Float32, dims)
			}
			want := contents(t, views[root])
			requireNone(t, atAll(groups, func(i int, g *peer.Group) error {
				return g.Broadcast(pairtest.Context(t), views[i], root)
			}))
			for _, v := range views {
				require.Equal(t, want, contents(t, v))
			}
		}
	})
}

func TestReduce(t *testing.T) {
	eachVan(t, func(t *testing.T, v pairtest.Van) {
		all := pairtest.NewPeers(t, pairtest.Options{Van: v}, 4)
		groups := membersOf(t, all, 3, 0, 2)
		r := rand.New(rand.NewPCG(1, 2))
		for i, op := range []peer.Merge{peer.Sum, peer.Avg, peer.Max, peer.Min, peer.Product} {
			d := []tensor.DType{tensor.BFloat16, tensor.Float32}[i%2]
			dims := [][]int64{{9, 5}, {0}, {3, race.Fewer[int64](300), 300}}[i%3]
			root := i % 3
			c := mergeCase{op: op, dst: randomView(t, all[groups[root].Ranks()[root]], r, d, dims)}
			for k, g := range groups {
				v := randomView(t, all[g.Ranks()[k]], r, d, dims)
				fillNumbers(t, v, r)
				c.from = append(c.from, v)
			}
			requireNone(t, atAll(groups, func(i int, g *peer.Group) error {
				into := tensor.Strided{}
				if i == root {
					into = c.dst
				}
				return g.Reduce(pairtest.Context(t), c.from[i], into, op, root)
			}))
			require.Equal(t, c.want(t), contents(t, c.dst), "%s of %s", op, d)
		}
	})
}

// Members that are done leave at once, while others are not.
func TestManyBroadcasts(t *testing.T) {
	eachVan(t, func(t *testing.T, v pairtest.Van) {
		all := pairtest.NewPeers(t, pairtest.Options{Van: v}, 3)
		groups := membersOf(t, all, 0, 1, 2)
		views := make([]tensor.Strided, 3)
		for i := range views {
			views[i] = dense(t, all[i], heap, tensor.Float32, 50_000)
		}
		for round := range race.Fewer(40) {
			fillNumbers(t, views[round%3], rand.New(rand.NewPCG(uint64(round), 1)))
			requireNone(t, atAll(groups, func(i int, g *peer.Group) error {
				return g.Broadcast(pairtest.Context(t), views[i], round%3)
			}))
			require.Equal(t, contents(t, views[0]), contents(t, views[1]))
			require.Equal(t, contents(t, views[0]), contents(t, views[2]))
		}
	})
}

func TestAGroupOfOne(t *testing.T) {
	all := pairtest.NewPeers(t, pairtest.Options{}, 1)
	groups := membersOf(t, all, 0)
	r := rand.New(rand.NewPCG(1, 2))
	from, into := dense(t, all[0], heap, tensor.Float32, 5), dense(t, all[0], heap, tensor.Float32, 5)
	fillNumbers(t, from, r)
	require.NoError(t, groups[0].Broadcast(pairtest.Context(t), from, 0))
	require.NoError(t, groups[0].Reduce(pairtest.Context(t), from, into, peer.Avg, 0))
	require.Equal(t, contents(t, from), contents(t, into))
}

func TestMembersThatDoNotFit(t *testing.T) {
	for _, c := range []struct {
		name string
		call func(i int, g *peer.Group, all []*pairtest.PeerOfCluster) error
		want string
	}{
		{"sizes", func(i int, g *peer.Group, all []*pairtest.PeerOfCluster) error {
			return g.Broadcast(pairtest.Context(t), like(t, tensor.Float32, tensor.ShapeOf(int64(10+i/2))), 0)
		}, "float32[11]"},
		{"types", func(i int, g *peer.Group, all []*pairtest.PeerOfCluster) error {
			v := like(t, []tensor.DType{tensor.Float32, tensor.Int32, tensor.Float32}[i], tensor.ShapeOf(6))
			return g.Reduce(pairtest.Context(t), v, like(t, v.DType(), v.Shape()), peer.Sum, 0)
		}, "int32[6]"},
		{"roots", func(i int, g *peer.Group, all []*pairtest.PeerOfCluster) error {
			return g.Broadcast(pairtest.Context(t), like(t, tensor.Float32, tensor.ShapeOf(6)), i/2)
		}, "member 1"},
		{"merges", func(i int, g *peer.Group, all []*pairtest.PeerOfCluster) error {
			v := like(t, tensor.Float32, tensor.ShapeOf(6))
			return g.Reduce(pairtest.Context(t), v, like(t, v.DType(), v.Shape()), []peer.Merge{peer.Sum, peer.Sum, peer.Max}[i], 0)
		}, "give both the same merge"},
	} {
		eachVan(t, func(t *testing.T, v pairtest.Van) {
			all := pairtest.NewPeers(t, pairtest.Options{Van: v}, 3)
			groups := membersOf(t, all, 0, 1, 2)
			for i, err := range atAll(groups, func(i int, g *peer.Group) error { return c.call(i, g, all) }) {
				var m *peer.MismatchError
				require.ErrorAs(t, err, &m, "%s at member %d", c.name, i)
				require.ErrorContains(t, err, c.want, "%s at member %d", c.name, i)
			}
			require.ErrorContains(t, groups[0].Barrier(pairtest.Context(t)), "has failed before")
		})
	}
}

func TestArgumentsOfAGroup(t *testing.T) {
	v := like(t, tensor.Float32, tensor.ShapeOf(6))
	half, err := v.Narrow(0, 0, 3)
	require.NoError(t, err)
	ctx := pairtest.Context(t)
	for want, call := range map[string]func(g *peer.Group) error{
		"got 2, want 0 to 1": func(g *peer.Group) error { return g.Broadcast(ctx, v, 2) },
		"got -1":             func(g *peer.Group) error { return g.Reduce(ctx, v, v, peer.Sum, -1) },
		"no such merge":      func(g *peer.Group) error { return g.Reduce(ctx, v, v, peer.Overwrite, 0) },
		"got 9":              func(g *peer.Group) error { return g.Reduce(ctx, v, v, 9, 0) },
		"shares elements":    func(g *peer.Group) error { return g.Reduce(ctx, v, v, peer.Sum, 0) },
		"got float32[3]":     func(g *peer.Group) error { return g.Reduce(ctx, v, half, peer.Sum, 0) },
		"several elements in one ": func(g *peer.Group) error {
			x := v.Memory()
			s, err := x.AsStrided(tensor.ShapeOf(6), []int64{0}, 0)
			require.NoError(t, err)
			return g.Broadcast(ctx, s, 1)
		},
	} {
		all := pairtest.NewPeers(t, pairtest.Options{}, 2)
		groups := membersOf(t, all, 0, 1)
		require.NoError(t, all[0].Connect(ctx, 1))
		errs := atAll(groups, func(i int, g *peer.Group) error {
			if i == 0 {
				return call(g)
			}
			return g.Broadcast(ctx, like(t, tensor.Float32, tensor.ShapeOf(6)), 0)
		})
		require.ErrorIs(t, errs[0], stepvan.ErrInvalid, want)
		require.ErrorContains(t, errs[0], want)
		require.ErrorIs(t, errs[1], stepvan.ErrRemote, "the others learn it")
		require.ErrorContains(t, errs[1], want)
	}
}

func TestADeathEndsAnOperationOfAGroup(t *testing.T) {
	for _, reduces := range []bool{false, true} {
		t.Run(fmt.Sprint(reduces), func(t *testing.T) {
			eachVan(t, func(t *testing.T, v pairtest.Van) {
				redial := func(o *peer.Options) { o.Redial = 50 * time.Millisecond } // nobody says that peer 2 is dead
				all := pairtest.NewPeers(t, pairtest.Options{Van: v, Peer: redial}, 3)
				groups := membersOf(t, all, 0, 1, 2)
				ctx, cancel := context.WithTimeout(pairtest.Context(t), pairtest.WaitLimit)
				defer cancel()
				requireNone(t, atAll(groups, func(_ int, g *peer.Group) error { return g.Barrier(ctx) }))
				views, into := make([]tensor.Strided, 3), dense(t, all[0], heap, tensor.Float32, 500_000)
				for i := range views {
					views[i] = dense(t, all[i], heap, tensor.Float32, 500_000)
				}
				errs := atAll(groups, func(i int, g *peer.Group) error {
					if i == 2 {
						return all[2].Transport.Abort()
					}
					if reduces {
						return g.Reduce(ctx, views[i], into, peer.Sum, 0)
					}
					return g.Broadcast(ctx, views[i], 0)
				})
				for i, err := range errs[:2] {
					require.Error(t, err, "member %d", i)
					require.ErrorContains(t, err, "peer 2", "member %d", i)
				}
			})
		})
	}
}

// A member may fail when the others have compared what all bring, and wait for its part in the plan. They are told.
func TestAMemberThatFailsBeforeThePlanOfAnOperation(t *testing.T) {
	for root := range 2 {
		l := newLiar(t, pairtest.Mem())
		g, err := l.all[0].Group("g", []stepvan.Rank{0, 2})
		require.NoError(t, err)
		view := dense(t, l.all[0], heap, tensor.Float32, 50_000)
		ended := make(chan error, 1)
		go func() { ended <- g.Broadcast(t.Context(), view, root) }() // without a deadline, at which it would look
		brings := l.take(peer.OpLetter)
		key := string(brings.Meta)
		require.NoError(t, l.tell(lie{op: peer.OpLetter, bulk: true, meta: []byte(key), payload: bytes.Clone(brings.Payload)}))
		require.Equal(t, byte(peer.LetterProposal), l.take(peer.OpLetter).Payload[0])
		id, _, found := strings.Cut(strings.TrimPrefix(key, "g:"), ":broadcast")
		require.True(t, found, key)
		require.NoError(t, l.tell(lie{op: peer.OpLetter, bulk: true, meta: []byte("!" + id), payload: []byte("out of memory")}))
		select {
		case err = <-ended:
		case <-time.After(pairtest.WaitLimit):
			t.Fatal("it hangs")
		}
		require.ErrorIs(t, err, stepvan.ErrRemote)
		require.ErrorContains(t, err, "peer 2")
		require.ErrorContains(t, err, "out of memory")
	}
}
