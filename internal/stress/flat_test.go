package stress

import (
	"context"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/ps"
)

// exchangeCount is what must be flat: so many exchanges of a load.
type exchangeCount struct {
	name         string
	load         load
	count, short int
}

var exchangeCounts = []exchangeCount{
	{"8 bytes", tiny, 1_000_000, 15_000},
	{"activations", afdSize, 100_000, 500},
}

// counts are the exchanges of the warm-up, which fills everything that is kept for reuse, and of the proof.
func (d exchangeCount) counts() (warm, proof int) {
	if *long {
		return max(100_000, d.count/10), d.count
	}
	return 3000 / slowness, d.short / slowness
}

// brief makes the rings of handles and of timestamps small enough to wrap within the warm-up of the
// short form. In the long form they have their usual sizes.
func brief(s *ps.Settings) {
	if !*long {
		s.Handles, s.TraceEvents = 256, 256
	}
}

// Nothing grows with the number of exchanges between nodes that each have a process.
func TestExchangesStayFlatSoak(t *testing.T) {
	each(t, vansOfMachines(), func(t *testing.T, van vanKind) {
		for _, d := range exchangeCounts {
			t.Run(d.name, func(t *testing.T) {
				cl := raise(t, van, shape{workers: 1, servers: 1, work: work{Loads: []load{d.load}}, edit: brief})
				warm, proof := d.counts()
				if d.load == afdSize {
					warm = min(warm, proof)
				}
				w := cl.workers[0]
				w.exchange(warm)
				before := cl.samples()
				w.exchange(proof)
				for i, p := range cl.all() {
					requireFlat(t, p.name, before[i], p.sample)
				}
				w.tell(command{Do: doStop})
				for _, p := range cl.all() {
					require.Empty(t, p.end())
				}
				require.Empty(t, files(t, cl.dir))
			})
		}
	})
}

// exchange has a worker do n exchanges.
func (c *child) exchange(n int) {
	c.t.Helper()
	c.tell(command{Do: doRun, Count: n})
	c.awaitFor(soakBound, evRan, nil)
}

// samples takes the vitals of all.
func (cl *cluster) samples() (out []vitals) {
	cl.t.Helper()
	for _, p := range cl.all() {
		out = append(out, p.sample())
	}
	return out
}

// Nothing grows in one process either, where the test counts worker, server and scheduler together.
func TestExchangesOfOneProcessStayFlatSoak(t *testing.T) {
	each(t, vans(), func(t *testing.T, van vanKind) {
		for _, d := range exchangeCounts {
			t.Run(d.name, func(t *testing.T) {
				was, err := takeStock()
				require.NoError(t, err)
				h := startLocalCluster(t, van, shape{workers: 1, servers: 1, work: work{Loads: []load{d.load}}, edit: brief})
				warm, proof := d.counts()
				if d.load == afdSize {
					warm = min(warm, proof)
				}
				h.exchange(warm)
				before := steady(t)()
				h.exchange(proof)
				requireFlat(t, "the process", before, steady(t))
				h.end()
				require.Empty(t, was.leaks())
			})
		}
	})
}

// localCluster is a cluster in this process, with one worker and one server.
type localCluster struct {
	t        testing.TB
	nodes    []*ps.Node
	asker    *asker
	answerer *answerer
	events   chan event
	rest     context.CancelFunc
	over     chan struct{} // the server has nothing to do any more
}

// startLocalCluster starts a cluster in this process.
func startLocalCluster(t testing.TB, van vanKind, c shape) *localCluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	all := []ps.Settings{c.settings(van, ps.RoleScheduler, 0, 0), c.settings(van, ps.RoleServer, 0, 0), c.settings(van, ps.RoleWorker, 0, 0)}
	opts := []ps.Option{ps.WithLogger(zerolog.Nop())}
	if van.network != nil {
		opts = append(opts, ps.WithNetwork(van.network()))
	}
	nodes, err := ps.StartAll(ctx, all, opts...)
	require.NoError(t, err)
	h := &localCluster{t: t, nodes: nodes, events: make(chan event, 16), over: make(chan struct{})}
	report := func(e event) { h.events <- e }
	h.answerer, err = newAnswerer(nodes[1], &c.work, report)
	require.NoError(t, err)
	h.asker, err = newAsker(nodes[2], &c.work, report)
	require.NoError(t, err)
	working, rest := context.WithCancel(context.Background())
	h.rest = rest
	h.answerer.start(working, func() { close(h.over) })
	h.asker.start(working)
	return h
}

// exchange does n exchanges.
func (h *localCluster) exchange(n int) {
	h.t.Helper()
	h.asker.do(command{Do: doRun, Count: n})
	e := <-h.events
	require.Equal(h.t, evRan, e.Kind, e.Text)
}

// end stops all nodes, which must hold nothing any more.
func (h *localCluster) end() {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	results := make(chan error, len(h.nodes))
	for _, n := range h.nodes {
		go func() { results <- n.Stop(ctx) }()
	}
	for range h.nodes {
		require.NoError(h.t, <-results)
	}
	h.rest()
	require.NoError(h.t, h.asker.close())
	require.NoError(h.t, h.answerer.close())
	select {
	case e := <-h.events:
		require.Fail(h.t, "something was wrong", "%+v", e)
	default:
	}
}
