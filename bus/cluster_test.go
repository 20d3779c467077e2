package bus

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/layout"
	"github.com/stepvan/stepvan/postoffice"
	"github.com/stepvan/stepvan/tensor"
)

// corkboard is a board in the memory of a test. Its entries live as long as their owner, as those of the scheduler do.
type corkboard struct {
	mu      sync.Mutex
	entries map[string]postoffice.Entry
	order   uint64
	changed chan struct{}
}

func newCorkboard() *corkboard {
	return &corkboard{entries: map[string]postoffice.Entry{}, changed: make(chan struct{})}
}

// pinner is the board as a peer has it.
type pinner struct {
	board *corkboard
	rank  stepvan.Rank
}

func (b *corkboard) wake() {
	close(b.changed)
	b.changed = make(chan struct{})
}

func (p pinner) Post(_ context.Context, key string, value []byte) error {
	b := p.board
	b.mu.Lock()
	defer b.mu.Unlock()
	e, ok := b.entries[key]
	if ok && e.Owner.Rank != p.rank {
		return fmt.Errorf("%s belongs to %s: %w", key, e.Owner.Name(), stepvan.ErrRemote)
	}
	if !ok {
		b.order++
		e = postoffice.Entry{Key: key, Order: b.order, Owner: postoffice.Peer{Role: stepvan.RolePeer, Rank: p.rank}}
	}
	e.Value = slices.Clone(value)
	b.entries[key] = e
	b.wake()
	return nil
}

func (p pinner) Remove(_ context.Context, key string) error {
	return p.remove(key, func([]byte) bool { return true })
}

func (p pinner) RemoveValue(_ context.Context, key string, value []byte) error {
	return p.remove(key, func(old []byte) bool { return bytes.Equal(old, value) })
}

func (p pinner) remove(key string, only func(value []byte) bool) error {
	b := p.board
	b.mu.Lock()
	defer b.mu.Unlock()
	if e, ok := b.entries[key]; !ok || e.Owner.Rank != p.rank || !only(e.Value) {
		return fmt.Errorf("%s: no such entry: %w", key, stepvan.ErrRemote)
	}
	delete(b.entries, key)
	b.wake()
	return nil
}

func (p pinner) Watch(ctx context.Context, prefix string, until func([]postoffice.Entry) bool) ([]postoffice.Entry, error) {
	for {
		all, changed := p.board.list(prefix)
		if until(all) {
			return all, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, errs.GaveUp(0, ctx.Err())
		}
	}
}

func (b *corkboard) list(prefix string) (all []postoffice.Entry, changed <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, e := range b.entries {
		if strings.HasPrefix(key, prefix) {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b postoffice.Entry) int { return int(a.Order) - int(b.Order) })
	return all, b.changed
}

// kill takes the entries of a peer off the board, as the scheduler does when a node has died.
func (b *corkboard) kill(rank stepvan.Rank) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, e := range b.entries {
		if e.Owner.Rank == rank {
			delete(b.entries, key)
		}
	}
	b.wake()
}

// curtain is a board that an agent sees only while the curtain is not drawn.
type curtain struct {
	pinner
	drawn chan struct{} // full while it is drawn
}

func newCurtain(p pinner) curtain { return curtain{p, make(chan struct{}, 1)} }

func (c curtain) draw() { c.drawn <- struct{}{} }

func (c curtain) open() { <-c.drawn }

func (c curtain) Watch(ctx context.Context, prefix string, until func([]postoffice.Entry) bool) ([]postoffice.Entry, error) {
	return c.pinner.Watch(ctx, prefix, func(all []postoffice.Entry) bool {
		select {
		case c.drawn <- struct{}{}:
			<-c.drawn
		case <-ctx.Done():
			return true
		}
		return until(all)
	})
}

// town is a cluster of peers with an agent at each.
type town struct {
	peers  []*pairtest.PeerOfCluster
	board  *corkboard
	views  []curtain // of the board, as the agents have it
	agents []*Agent
}

func newTown(t testing.TB, v pairtest.Van, n int, o Options) *town {
	t.Helper()
	x := &town{peers: pairtest.NewPeers(t, pairtest.Options{Van: v}, n), board: newCorkboard()}
	for i, p := range x.peers {
		o := o
		o.Memory, o.Log = p.Memory, zerolog.Nop()
		x.views = append(x.views, newCurtain(pinner{x.board, stepvan.Rank(i)}))
		a, err := NewAgent(t.Context(), p.Peer, x.views[i], o)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, a.Close(within(t))) })
		x.agents = append(x.agents, a)
	}
	return x
}

// within is a context for what must not take long.
func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), pairtest.WaitLimit)
	t.Cleanup(cancel)
	return ctx
}

// client makes a client at an agent, which the end of the test closes.
func (x *town) client(t testing.TB, agent, rank int) *Client {
	t.Helper()
	c, err := x.agents[agent].Client(ClientOptions{Rank: rank})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close(within(t))) })
	return c
}

// job is one side of a pair: its clients, by rank.
type job struct {
	name    string
	layout  *layout.Layout
	clients []*Client
}

// job makes the clients of a side, at these agents.
func (x *town) job(t testing.TB, name string, l *layout.Layout, agents ...int) *job {
	t.Helper()
	s := &job{name: name, layout: l}
	for i, a := range agents {
		s.clients = append(s.clients, x.client(t, a, i))
	}
	return s
}

// command is the InitPair of a side.
func (s *job) command(pair, remote string) *InitPair {
	c := &InitPair{PairName: pair, LocalName: s.name, ExpectedWorldSize: len(s.clients), RemoteName: remote}
	if s.layout != nil {
		c.MeshShape, c.Placements = EncodeMesh(s.layout.Mesh.Dims), EncodePlacements(s.layout.Placements)
	}
	return c
}

// everywhere calls f for all clients of both sides at once.
func everywhere(f func(s *job, i int) error, sides ...*job) []error {
	var g errgroup.Group
	var all []error
	at := 0
	for _, s := range sides {
		for range s.clients {
			all = append(all, nil)
		}
	}
	for _, s := range sides {
		for i := range s.clients {
			k := at
			at++
			g.Go(func() error {
				all[k] = f(s, i)
				return nil
			})
		}
	}
	_ = g.Wait()
	return all
}

// open sends the InitPair of a rank.
func (s *job) open(t testing.TB, i int, c *InitPair) error {
	t.Helper()
	_, err := s.clients[i].Do(within(t), c)
	return err
}

func noErrors(t testing.TB, all []error) {
	t.Helper()
	for i, err := range all {
		require.NoError(t, err, "rank %d", i)
	}
}

// openEverywhere opens a pair at all ranks.
func openEverywhere(t testing.TB, pair string, a, b *job) {
	t.Helper()
	other := map[*job]string{a: b.name, b: a.name}
	noErrors(t, everywhere(func(s *job, i int) error {
		_, err := s.clients[i].Do(within(t), s.command(pair, other[s]))
		return err
	}, a, b))
}

// registerAll registers one tensor a rank at all ranks.
func registerAll(t testing.TB, batch, pair string, views map[*job][]tensor.Strided) []error {
	t.Helper()
	var sides []*job
	for s := range views {
		sides = append(sides, s)
	}
	slices.SortFunc(sides, func(a, b *job) int { return strings.Compare(a.name, b.name) })
	return everywhere(func(s *job, i int) error {
		return s.clients[i].Register(within(t), batch, []Tensor{{pair, views[s][i]}})
	}, sides...)
}

// transferAll runs a round from one side to the other.
func transferAll(t testing.TB, batch string, from, to *job) []error {
	t.Helper()
	return everywhere(func(s *job, i int) error {
		kind := Send
		if s == to {
			kind = Recv
		}
		_, err := s.clients[i].Do(within(t), &Transfer{BatchID: batch, Type: kind})
		return err
	}, from, to)
}

func cleanupAll(t testing.TB, batch string, sides ...*job) {
	t.Helper()
	noErrors(t, everywhere(func(s *job, i int) error {
		_, err := s.clients[i].Do(within(t), &CleanupBatch{BatchID: batch})
		return err
	}, sides...))
}

// nothingLeft checks that no agent keeps anything of a batch.
func (x *town) nothingLeft(t testing.TB) {
	t.Helper()
	deadline := time.Now().Add(pairtest.WaitLimit)
	for {
		var left []string
		for i, a := range x.agents {
			a.mu.Lock()
			if n := len(a.legs) + len(a.collections) + len(a.partial); n > 0 {
				left = append(left, fmt.Sprintf("agent %d: %d legs, %d collections, %d letters", i, len(a.legs), len(a.collections), len(a.partial)))
			}
			for id, s := range a.clients {
				if len(s.batches)+len(s.memories.shared)+len(s.lanes) > 0 || s.count > 0 {
					left = append(left, fmt.Sprintf("agent %d: client %d: %d batches, %d memories, %d lanes, %d commands", i, id, len(s.batches), len(s.memories.shared), len(s.lanes), s.count))
				}
			}
			a.mu.Unlock()
		}
		if len(left) == 0 {
			return
		}
		require.True(t, time.Now().Before(deadline), "%v", left)
		time.Sleep(time.Millisecond)
	}
}
