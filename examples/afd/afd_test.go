package afd_test

import (
	"context"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/examples/afd"
	"github.com/stepvan/stepvan/examples/afd/model"
	"github.com/stepvan/stepvan/examples/afd/model/modeltest"
	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/trace"
)

// smallModel gives both halves of a model that needs no download.
func smallModel(t testing.TB, parts int) (*model.Attention, []*model.FFNSlice) {
	t.Helper()
	c := modeltest.Config()
	f, err := modeltest.File(c, 3)
	require.NoError(t, err)
	a, err := model.LoadAttention(c, f)
	require.NoError(t, err)
	slices := make([]*model.FFNSlice, parts)
	for part := range slices {
		slices[part], err = model.LoadFFN(c, f, part, parts)
		require.NoError(t, err)
	}
	return a, slices
}

// split runs workers and servers of a cluster on their shares of sentences.
func split(t testing.TB, a *model.Attention, slices []*model.FFNSlice, workers, maxTokens int, sentences [][]int32) ([]model.Embedding, *cluster) {
	t.Helper()
	c := start(t, workers, len(slices))
	return c.embed(a, slices, maxTokens, sentences), c
}

// embed has the workers embed their shares of sentences, and ends the cluster.
func (c *cluster) embed(a *model.Attention, slices []*model.FFNSlice, maxTokens int, sentences [][]int32) []model.Embedding {
	t, workers := c.t, len(c.workers)
	t.Helper()
	c.serve(slices, maxTokens)
	shares := make([][]model.Embedding, workers)
	var working sync.WaitGroup
	for rank, n := range c.workers {
		working.Go(func() {
			lo, hi := afd.Share(len(sentences), rank, workers)
			batches, err := model.Pack(sentences[lo:hi], maxTokens)
			if err != nil {
				t.Errorf("pack: %v", err)
				return
			}
			w := afd.Worker{Node: n, Attention: a, Servers: len(slices)}
			if shares[rank], err = w.Run(limited(t), batches); err != nil {
				t.Errorf("worker %d: %v", rank, err)
			}
		})
	}
	working.Wait()
	c.stop()
	var all []model.Embedding
	for _, s := range shares {
		all = append(all, s...)
	}
	return all
}

func requireSameBits(t testing.TB, want, got []model.Embedding) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		for j := range want[i] {
			require.Equal(t, math.Float32bits(want[i][j]), math.Float32bits(got[i][j]), "sentence %d element %d", i, j)
		}
	}
}

func TestSplitEqualsOneProcess(t *testing.T) {
	c := modeltest.Config()
	sentences := modeltest.Sentences(c, 40, 60, 5)
	for _, size := range []struct{ workers, servers int }{{1, 1}, {2, 2}, {3, 1}, {1, 3}} {
		a, slices := smallModel(t, size.servers)
		batches, err := model.Pack(sentences, 100)
		require.NoError(t, err)
		want, err := model.Run(a, slices, batches)
		require.NoError(t, err)
		got, c := split(t, a, slices, size.workers, 100, sentences)
		requireSameBits(t, want, got)
		for _, w := range c.workers {
			require.Len(t, w.slots, afd.DefaultInFlight, "micro-batches in flight")
			require.Zero(t, w.inFlight())
		}
	}
}

func TestRealSplitEqualsOneProcess(t *testing.T) {
	files := needModel(t)
	fixture := readTorchFixture(t)
	var ids [][]int32
	for _, s := range fixture.Sentences[:12] { // the race detector is slow at this
		ids = append(ids, s.IDs)
	}
	a, slices := loadModel(t, files, 2)
	batches, err := model.Pack(ids, 128)
	require.NoError(t, err)
	want, err := model.Run(a, slices, batches)
	require.NoError(t, err)
	got, _ := split(t, a, slices, 2, 128, ids)
	requireSameBits(t, want, got)
}

func TestWorkerReports(t *testing.T) {
	a, slices := smallModel(t, 2)
	c := start(t, 1, 2)
	c.serve(slices, 64)
	batches, err := model.Pack(modeltest.Sentences(modeltest.Config(), 9, 60, 5), 64)
	require.NoError(t, err)
	var progress []int
	w := afd.Worker{
		Node: c.workers[0], Attention: a, Servers: 2, InFlight: 2,
		Progress: func(done, total int) {
			require.Equal(t, len(batches), total)
			progress = append(progress, done)
		},
	}
	_, err = w.Run(limited(t), batches)
	require.NoError(t, err)
	c.stop()
	require.Len(t, progress, len(batches))
	require.IsIncreasing(t, progress)
	require.Equal(t, map[string]int{"layer 0": len(batches), "layer 1": len(batches)}, c.workers[0].labels)
	require.Len(t, c.workers[0].slots, 2)

	summary := trace.Summarize(c.workers[0].Trace(), trace.ByLabel)
	require.Len(t, summary.Rows, 2, "a row per layer")
	require.Equal(t, "layer 0", summary.Rows[0].Label)
	require.Positive(t, summary.Rows[0].Server.P50, "the server's part is known to the worker")
}

// everyOther is true on each second call.
func everyOther() func() bool {
	n := 0
	return func() bool {
		n++
		return n%2 == 0
	}
}

func TestFullQueuesAreWaitedFor(t *testing.T) {
	sentences := modeltest.Sentences(modeltest.Config(), 20, 60, 5)
	a, slices := smallModel(t, 2)
	batches, err := model.Pack(sentences, 64)
	require.NoError(t, err)
	want, err := model.Run(a, slices, batches)
	require.NoError(t, err)
	for inFlight := 1; inFlight <= 3; inFlight++ {
		c := start(t, 1, 2)
		c.workers[0].refuse = everyOther()
		c.servers[0].refuse, c.servers[1].refuse = everyOther(), everyOther()
		c.serve(slices, 64)
		w := afd.Worker{Node: c.workers[0], Attention: a, Servers: 2, InFlight: inFlight}
		got, err := w.Run(limited(t), batches)
		require.NoError(t, err)
		requireSameBits(t, want, got)
		c.stop()
	}
}

func TestFullQueueWithNothingUnderWay(t *testing.T) {
	a, slices := smallModel(t, 1)
	c := start(t, 1, 1)
	c.workers[0].refuse = func() bool { return true }
	w := afd.Worker{Node: c.workers[0], Attention: a, Servers: 1}
	_, err := w.Run(limited(t), []model.Batch{{IDs: []int32{1}, Ends: []int{1}}})
	require.ErrorIs(t, err, stepvan.ErrWouldBlock)

	c.servers[0].refuse = func() bool { return true }
	c.push(0, floats(t, 1, 48))
	s := afd.Server{Node: c.servers[0], FFN: slices[0], Workers: 1, MaxTokens: 8}
	require.ErrorIs(t, s.Run(limited(t)), stepvan.ErrWouldBlock)
}

// push has worker 0 push a tensor to the only server, as another program than afd.Worker may.
func (c *cluster) push(key tensor.Key, x tensor.Tensor) {
	c.t.Helper()
	_, err := c.workers[0].Node.Do(&ps.Exchange{
		Push: []tensor.Tensor{x}, PushKeys: []tensor.Key{key}, Pull: []tensor.Tensor{floats(c.t, 1, 48)}, PullKeys: []tensor.Key{key | 1<<48},
	})
	require.NoError(c.t, err)
}

func floats(t testing.TB, dims ...int64) tensor.Tensor {
	t.Helper()
	n := int64(1)
	for _, d := range dims {
		n *= d
	}
	x, err := tensor.FromSlice(make([]float32, n), dims...)
	require.NoError(t, err)
	return x
}

func TestWorkerWithoutBatches(t *testing.T) {
	a, _ := smallModel(t, 1)
	w := afd.Worker{Node: ranked{}, Attention: a, Servers: 1}
	got, err := w.Run(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, got)
}

// ranked is a node that has a rank and does nothing.
type ranked struct {
	*ps.Node
	rank stepvan.Rank
}

func (r ranked) Rank() stepvan.Rank { return r.rank }

func TestWorkerRefuses(t *testing.T) {
	a, _ := smallModel(t, 1)
	good := []model.Batch{{IDs: []int32{1}, Ends: []int{1}}}
	for name, c := range map[string]struct {
		change  func(*afd.Worker)
		batches []model.Batch
		want    string
	}{
		"no servers":     {func(w *afd.Worker) { w.Servers = 0 }, good, "0 servers"},
		"negative rank":  {func(w *afd.Worker) { w.Node = ranked{rank: -1} }, good, "rank -1"},
		"too many slots": {func(w *afd.Worker) { w.InFlight = 257 }, good, "257 micro-batches"},
		"bad batch":      {func(*afd.Worker) {}, []model.Batch{{}}, "micro-batch 0"},
	} {
		t.Run(name, func(t *testing.T) {
			w := afd.Worker{Node: ranked{}, Attention: a, Servers: 1}
			c.change(&w)
			_, err := w.Run(t.Context(), c.batches)
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestProgramsEndWithTheirContext(t *testing.T) {
	a, slices := smallModel(t, 1)
	c := start(t, 1, 1)
	s := afd.Server{Node: c.servers[0], FFN: slices[0], Workers: 1, MaxTokens: 8}
	ended, end := context.WithCancel(t.Context())
	end()
	require.ErrorIs(t, s.Run(ended), context.Canceled, "a server ends with its context too")
	w := afd.Worker{Node: c.workers[0], Attention: a, Servers: 1}
	_, err := w.Run(ended, []model.Batch{{IDs: []int32{1}, Ends: []int{1}}})
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "micro-batch 0, layer 0")
}

func TestServerRefuses(t *testing.T) {
	_, slices := smallModel(t, 1)
	bytes, err := tensor.FromSlice(make([]uint8, 48), 1, 48)
	require.NoError(t, err)
	const pull, layer, slot = 1 << 48, 1, 1 << 8
	for name, c := range map[string]struct {
		key    tensor.Key
		pushed tensor.Tensor
		want   string
	}{
		"layer unknown":   {2 * layer, floats(t, 1, 48), "layer 2"},
		"slot unknown":    {3 * slot, floats(t, 1, 48), "slot 3"},
		"pull as push":    {pull, floats(t, 1, 48), "asks for"},
		"other width":     {0, floats(t, 1, 64), "tokens of 48"},
		"other rank":      {0, floats(t, 48), "tokens of 48"},
		"too many tokens": {0, floats(t, 9, 48), "1 to 8 tokens"},
		"other type":      {0, bytes, "worker 0"},
	} {
		t.Run(name, func(t *testing.T) {
			cl := start(t, 1, 1)
			cl.servers[0].pooled = true
			cl.push(c.key, c.pushed)
			s := afd.Server{Node: cl.servers[0], FFN: slices[0], Workers: 1, MaxTokens: 8}
			require.ErrorContains(t, s.Run(limited(t)), c.want)
		})
	}
	t.Run("two tensors", func(t *testing.T) {
		c := start(t, 1, 1)
		x := floats(t, 1, 48)
		_, err := c.workers[0].Node.Do(&ps.Exchange{Push: []tensor.Tensor{x, x}, PushKeys: []tensor.Key{0, layer}})
		require.NoError(t, err)
		s := afd.Server{Node: c.servers[0], FFN: slices[0], Workers: 1, MaxTokens: 8}
		require.ErrorContains(t, s.Run(limited(t)), "2 keys and 2 tensors")
	})
	for want, s := range map[string]afd.Server{
		"MaxTokens":     {Workers: 1},
		"0 workers":     {MaxTokens: 1},
		"micro-batches": {MaxTokens: 1, Workers: 1, InFlight: -1},
	} {
		s.FFN = slices[0]
		require.ErrorContains(t, s.Run(t.Context()), want)
	}
}

func TestSentences(t *testing.T) {
	all := afd.Sentences()
	require.Len(t, all, 335)
	for _, s := range all {
		require.Equal(t, strings.TrimSpace(s), s)
	}
	require.Equal(t, []string{"a b", "c"}, afd.ParseSentences("# x\n\na b\r\n  c  "))
}

func TestShare(t *testing.T) {
	for _, n := range []int{0, 1, 7, 335} {
		for workers := 1; workers < 9; workers++ {
			at := 0
			for rank := range workers {
				lo, hi := afd.Share(n, rank, workers)
				require.Equal(t, at, lo)
				require.LessOrEqual(t, hi-lo, n/workers+1)
				at = hi
			}
			require.Equal(t, n, at)
		}
	}
}
