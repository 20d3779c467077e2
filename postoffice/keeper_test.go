package postoffice

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/wire"
)

// drawer is the conn of a member that takes pieces when the test says so.
type drawer struct {
	pipe
	frames []frame
	whole  []map[string]string // the board, as it was when each of frames was sent
	board  func() map[string]string
}

func (d *drawer) post(f frame) {
	if f.op == opBoard {
		d.frames, d.whole = append(d.frames, f), append(d.whole, d.board())
	}
}

// keeping is a keeper with members of a test.
type keeping struct {
	*keeper
	t       *testing.T
	members []*member
}

func newKeeping(t *testing.T, c *cluster, members int) *keeping {
	d := &keeping{keeper: c.s.keeper, t: t}
	for i := range members {
		d.members = append(d.members, &member{
			conn: &drawer{board: func() map[string]string { return d.all("") }},
			info: Peer{ID: wire.PeerID(10 + i), Role: stepvan.RolePeer, Rank: stepvan.Rank(i), Incarnation: 7, Addresses: []string{"mem://secret"}},
		})
	}
	return d
}

// all are the entries with a prefix, as the keeper has them.
func (d *keeping) all(prefix string) map[string]string {
	out := map[string]string{}
	for key, n := range d.entries {
		if strings.HasPrefix(key, prefix) {
			out[key] = string(n.encoded)
		}
	}
	return out
}

func (d *keeping) do(m *member, f frame) {
	d.t.Helper()
	require.NoError(d.t, d.handle(m, f))
}

// follower is a watch of a member at the other end.
type follower struct {
	watched
	m       *member
	request uint64
	pieces  int
}

func (d *keeping) follow(m *member, request uint64, prefix string) *follower {
	d.do(m, encode(opWatch, request, watchBody{prefix}))
	return &follower{watched: watched{prefix: prefix, entries: map[string]Entry{}}, m: m, request: request}
}

// take takes the pieces that have come, and requires that the whole ones show the board as it was.
func (d *keeping) take(f *follower) (took bool) {
	d.t.Helper()
	c := f.m.conn.(*drawer)
	i := slices.IndexFunc(c.frames, func(fr frame) bool { return fr.request == f.request })
	if i < 0 {
		return false
	}
	fr, was := c.frames[i], c.whole[i]
	c.frames, c.whole = slices.Delete(c.frames, i, i+1), slices.Delete(c.whole, i, i+1)
	f.pieces++
	require.LessOrEqual(d.t, len(fr.body), maxMessage)
	require.NoError(d.t, f.watched.take(fr))
	if !f.more {
		maps.DeleteFunc(was, func(key, _ string) bool { return !strings.HasPrefix(key, f.prefix) })
		require.Equal(d.t, was, f.encoded())
	}
	d.do(f.m, frame{op: opNext, request: f.request})
	return true
}

// takeAll takes pieces until nothing is missing.
func (d *keeping) takeAll(f *follower) {
	d.t.Helper()
	for d.serveAll(); d.take(f); d.serveAll() {
	}
}

func (f *follower) encoded() map[string]string {
	out := map[string]string{}
	for key, e := range f.entries {
		out[key] = string(marshal(e))
	}
	return out
}

// Whatever comes in whatever order, each whole list of a watch is the board as it was when the list was sent, and the
// last one is the board.
func TestEachListIsTheBoardAtOneMoment(t *testing.T) {
	inCluster(t, SchedulerOptions{Peers: 1}, func(t *testing.T, c *cluster) {
		for seed := range uint64(4) {
			r := rand.New(rand.NewPCG(seed, 7))
			c.s.keeper = newKeeper(c.s)
			d := newKeeping(t, c, 4)
			var followers []*follower
			for i, prefix := range []string{"", "a", "ab", "b", "nothing"} {
				followers = append(followers, d.follow(d.members[i%3], uint64(100+i), prefix))
			}
			request, own := uint64(1000), d.members[:4:4]
			for range 2000 {
				request++
				m := own[r.IntN(len(own))]
				key := []string{"a", "ab", "b", ""}[r.IntN(4)] + fmt.Sprint(r.IntN(200))
				switch n := r.IntN(100); {
				case n < 55:
					d.do(m, encode(opPost, request, postBody{key, make([]byte, r.IntN(MaxValue))}))
				case n < 75:
					d.do(m, encode(opRemove, request, removeBody{Key: key}))
				case n == 75 && m == d.members[3]: // it has no watch
					d.depart(m)
				case n < 90:
					d.take(followers[r.IntN(len(followers))])
				default:
					d.served = time.Time{} // time passes
					d.tell()
				}
			}
			for _, f := range followers {
				d.takeAll(f)
				require.False(t, f.more)
				require.Equal(t, d.all(f.prefix), f.encoded(), "%q", f.prefix)
			}
			require.LessOrEqual(t, len(d.changes), 2*len(d.entries)+maxOwnEntries+1)
			d.requireSums()
		}
	})
}

// requireSums adds up what the entries count, and compares that with the sums of the keeper.
func (d *keeping) requireSums() {
	d.t.Helper()
	bytes, entries := 0, 0
	for _, m := range d.members {
		own := 0
		for key, n := range m.shelf.entries {
			require.Same(d.t, n, d.entries[key])
			own += n.bytes
		}
		require.Equal(d.t, own, m.shelf.bytes)
		bytes, entries = bytes+own, entries+len(m.shelf.entries)
	}
	require.Equal(d.t, []int{bytes, entries}, []int{d.bytes, len(d.entries)})
}

// A watch that does not take its pieces costs a bounded list of keys, and sees the right board afterwards.
func TestAWatchThatLagsBeginsAgain(t *testing.T) {
	inCluster(t, SchedulerOptions{Peers: 1}, func(t *testing.T, c *cluster) {
		d := newKeeping(t, c, 4)
		slow := d.follow(d.members[0], 1, "")
		for round := range 3 {
			for i := range 2000 {
				require.Nil(t, d.post(d.members[1+i%3], &postBody{Key: fmt.Sprint(round, "-", i), Value: []byte("x")}))
			}
			d.takeAll(slow)
			require.Len(t, slow.entries, 2000)
			for i := range 2000 {
				if i%100 > 0 {
					require.Nil(t, d.remove(d.members[1+i%3], &removeBody{Key: fmt.Sprint(round, "-", i)}))
				}
			}
			require.LessOrEqual(t, len(d.watches[0].removed), maxRemoved)
			d.takeAll(slow)
			require.Len(t, slow.entries, 20)
			for _, m := range d.members[1:] {
				for key := range m.shelf.entries {
					require.Nil(t, d.remove(m, &removeBody{Key: key}))
				}
			}
		}
	})
}

// A large board comes in pieces of at most 64 KiB, and whole.
func TestALargeBoardComesInPieces(t *testing.T) {
	inCluster(t, SchedulerOptions{Peers: 1}, func(t *testing.T, c *cluster) {
		d := newKeeping(t, c, 4)
		for i := range 600 {
			require.Nil(t, d.post(d.members[i%3], &postBody{Key: strings.Repeat(`"`, MaxKey-3) + fmt.Sprint(100+i), Value: make([]byte, MaxValue)}))
		}
		f := d.follow(d.members[3], 1, `"`)
		for d.take(f) {
		}
		require.Len(t, f.entries, 600)
		require.Greater(t, f.pieces, 40)
		require.Equal(t, 600*(MaxKey+MaxValue), f.bytes)
	})
}

func TestLimitsOfTheBoard(t *testing.T) {
	inCluster(t, SchedulerOptions{Peers: 1}, func(t *testing.T, c *cluster) {
		d := newKeeping(t, c, 66)
		for i := range maxOwnEntries {
			require.Nil(t, d.post(d.members[0], &postBody{Key: fmt.Sprint("a", i)}))
		}
		require.Contains(t, d.post(d.members[0], &postBody{Key: "more"}).Text, "this node has 1024 entries of 4010 bytes, and may have 1024 of 1048576: remove some")
		require.Nil(t, d.post(d.members[0], &postBody{Key: "a7", Value: []byte("b")}), "a replaced one is none more")
		require.Nil(t, d.remove(d.members[0], &removeBody{Key: "a8"}))
		require.Nil(t, d.post(d.members[0], &postBody{Key: "more"}))

		value := make([]byte, MaxValue)
		for i := range maxOwnBytes / (MaxValue + 4) {
			require.Nil(t, d.post(d.members[1], &postBody{Key: fmt.Sprint("b", 100+i), Value: value}))
		}
		require.NotNil(t, d.post(d.members[1], &postBody{Key: "more bytes", Value: value}))
		require.NotNil(t, d.post(d.members[2], &postBody{Key: "b100", Value: value}))

		for m := 2; m < 64; m++ {
			for i := range maxOwnEntries {
				require.Nil(t, d.post(d.members[m], &postBody{Key: fmt.Sprint(m, "-", i)}))
			}
		}
		for i := 0; len(d.entries) < maxEntries; i++ {
			require.Nil(t, d.post(d.members[64], &postBody{Key: fmt.Sprint("last", i)}))
		}
		require.Contains(t, d.post(d.members[65], &postBody{Key: "one more"}).Text, "the board is full, with 65536 entries of ")
		require.Nil(t, d.post(d.members[64], &postBody{Key: "last0", Value: value}))
		d.requireSums()
		d.depart(d.members[0])
		require.Nil(t, d.post(d.members[65], &postBody{Key: "one more"}))
		d.requireSums()
	})
}

// An entry names its owner, and has no address of it.
func TestAnEntryNamesItsOwner(t *testing.T) {
	inCluster(t, SchedulerOptions{Peers: 1}, func(t *testing.T, c *cluster) {
		d := newKeeping(t, c, 1)
		require.Nil(t, d.post(d.members[0], &postBody{Key: "a"}))
		f := d.follow(d.members[0], 1, "")
		d.take(f)
		require.Equal(t, Entry{Key: "a", Order: 1, Owner: Peer{ID: 10, Role: stepvan.RolePeer}}, f.entries["a"])
	})
}
