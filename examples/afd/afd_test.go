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
	"github.com/stepvan/stepvan/tensor"
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

// split runs workers and servers of a fabric on their shares of sentences.
func split(t testing.TB, a *model.Attention, slices []*model.FFNSlice, workers, maxTokens int, sentences [][]int32) ([]model.Embedding, *fabric) {
	t.Helper()
	f := newFabric(workers, len(slices))
	var ranks []stepvan.Rank
	for rank := range workers {
		ranks = append(ranks, stepvan.Rank(rank))
	}
	serving := serve(t, f, slices, ranks, maxTokens)
	shares := make([][]model.Embedding, workers)
	var working sync.WaitGroup
	for rank := range workers {
		working.Go(func() {
			lo, hi := afd.Share(len(sentences), rank, workers)
			batches, err := model.Pack(sentences[lo:hi], maxTokens)
			if err != nil {
				t.Errorf("pack: %v", err)
				return
			}
			w := afd.Worker{Node: f.workers[rank], Memory: heap{}, Attention: a, Rank: stepvan.Rank(rank), Servers: len(slices)}
			if shares[rank], err = w.Run(t.Context(), batches); err != nil {
				t.Errorf("worker %d: %v", rank, err)
			}
		})
	}
	working.Wait()
	f.leave()
	serving.Wait()
	var all []model.Embedding
	for _, s := range shares {
		all = append(all, s...)
	}
	return all, f
}

// serve starts the servers and returns when each has registered its memory.
func serve(t testing.TB, f *fabric, slices []*model.FFNSlice, ranks []stepvan.Rank, maxTokens int) *sync.WaitGroup {
	t.Helper()
	var serving, ready sync.WaitGroup
	for i, slice := range slices {
		ready.Add(1)
		s := afd.Server{
			Node: readyNode{f.servers[i], ready.Done}, Memory: heap{}, FFN: slice, Workers: ranks, MaxTokens: maxTokens,
		}
		serving.Go(func() {
			if err := s.Run(t.Context()); err != nil {
				t.Errorf("server %d: %v", i, err)
			}
		})
	}
	ready.Wait()
	return &serving
}

// readyNode calls ready after the memory is registered, in place of a barrier.
type readyNode struct {
	*fakeServer
	ready func()
}

func (r readyNode) RegisterRecvBuffer(t tensor.Tensor, ranks []stepvan.Rank, keys []tensor.Key) (afd.Registration, error) {
	defer r.ready()
	return r.fakeServer.RegisterRecvBuffer(t, ranks, keys)
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
		got, f := split(t, a, slices, size.workers, 100, sentences)
		requireSameBits(t, want, got)
		for _, w := range f.workers {
			require.Equal(t, afd.DefaultInFlight, w.most, "micro-batches in flight")
			require.Zero(t, w.inFlight)
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
	f := newFabric(1, 2)
	serving := serve(t, f, slices, []stepvan.Rank{0}, 64)
	batches, err := model.Pack(modeltest.Sentences(modeltest.Config(), 9, 60, 5), 64)
	require.NoError(t, err)
	var progress []int
	w := afd.Worker{
		Node: f.workers[0], Memory: heap{}, Attention: a, Servers: 2, InFlight: 2,
		Progress: func(done, total int) {
			require.Equal(t, len(batches), total)
			progress = append(progress, done)
		},
	}
	_, err = w.Run(t.Context(), batches)
	require.NoError(t, err)
	f.leave()
	serving.Wait()
	require.Len(t, progress, len(batches))
	require.IsIncreasing(t, progress)
	require.Equal(t, map[string]int{"layer 0": len(batches), "layer 1": len(batches)}, f.workers[0].labels)
	require.Equal(t, 2, f.workers[0].most)
	require.True(t, f.servers[0].ended, "the registration ends with the server")
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
		f := newFabric(1, 2)
		f.workers[0].refuse = everyOther()
		f.servers[0].refuse, f.servers[1].refuse = everyOther(), everyOther()
		serving := serve(t, f, slices, []stepvan.Rank{0}, 64)
		w := afd.Worker{Node: f.workers[0], Memory: heap{}, Attention: a, Servers: 2, InFlight: inFlight}
		got, err := w.Run(t.Context(), batches)
		require.NoError(t, err)
		requireSameBits(t, want, got)
		f.leave()
		serving.Wait()
	}
}

func TestFullQueueWithNothingUnderWay(t *testing.T) {
	a, slices := smallModel(t, 1)
	f := newFabric(1, 1)
	f.workers[0].refuse = func() bool { return true }
	w := afd.Worker{Node: f.workers[0], Memory: heap{}, Attention: a, Servers: 1}
	_, err := w.Run(t.Context(), []model.Batch{{IDs: []int32{1}, Ends: []int{1}}})
	require.ErrorIs(t, err, stepvan.ErrWouldBlock)

	f.servers[0].refuse = func() bool { return true }
	x, err := heap{}.Empty(tensor.Float32, 1, 48)
	require.NoError(t, err)
	s := afd.Server{
		Node:   scripted{f.servers[0], &fakeRequest{keys: []tensor.Key{0}, tensors: []tensor.Tensor{x}}},
		Memory: heap{}, FFN: slices[0], Workers: []stepvan.Rank{0}, MaxTokens: 8,
	}
	require.ErrorIs(t, s.Run(t.Context()), stepvan.ErrWouldBlock)
}

func TestWorkerWithoutBatches(t *testing.T) {
	a, _ := smallModel(t, 1)
	w := afd.Worker{Node: newFabric(1, 1).workers[0], Memory: heap{}, Attention: a, Servers: 1}
	got, err := w.Run(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, got)
}

func TestWorkerRefuses(t *testing.T) {
	a, _ := smallModel(t, 1)
	good := []model.Batch{{IDs: []int32{1}, Ends: []int{1}}}
	for name, c := range map[string]struct {
		change  func(*afd.Worker)
		batches []model.Batch
		want    string
	}{
		"no servers":        {func(w *afd.Worker) { w.Servers = 0 }, good, "0 servers"},
		"negative rank":     {func(w *afd.Worker) { w.Rank = -1 }, good, "rank -1"},
		"too many slots":    {func(w *afd.Worker) { w.InFlight = 257 }, good, "257 micro-batches"},
		"bad batch":         {func(*afd.Worker) {}, []model.Batch{{}}, "micro-batch 0"},
		"nothing is served": {func(*afd.Worker) {}, good, "not registered"},
	} {
		t.Run(name, func(t *testing.T) {
			w := afd.Worker{Node: newFabric(1, 1).workers[0], Memory: heap{}, Attention: a, Servers: 1}
			c.change(&w)
			_, err := w.Run(t.Context(), c.batches)
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestWorkerEndsWithItsContext(t *testing.T) {
	a, slices := smallModel(t, 1)
	f := newFabric(1, 1)
	s := afd.Server{Node: f.servers[0], Memory: heap{}, FFN: slices[0], Workers: []stepvan.Rank{0}, MaxTokens: 8}
	ended, end := context.WithCancel(t.Context())
	end()
	require.ErrorIs(t, s.Run(ended), context.Canceled, "a server ends with its context too")
	w := afd.Worker{Node: f.workers[0], Memory: heap{}, Attention: a, Servers: 1}
	_, err := w.Run(ended, []model.Batch{{IDs: []int32{1}, Ends: []int{1}}})
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "micro-batch 0, layer 0")
}

// scripted is a node with one request.
type scripted struct {
	*fakeServer
	request *fakeRequest
}

func (s scripted) GetBatch(context.Context) ([]afd.Request, error) {
	return []afd.Request{s.handOut(s.request)}, nil
}

func TestServerRefuses(t *testing.T) {
	_, slices := smallModel(t, 1)
	floats := func(dims ...int64) tensor.Tensor {
		x, err := heap{}.Empty(tensor.Float32, dims...)
		require.NoError(t, err)
		return x
	}
	bytes, err := tensor.FromSlice(make([]uint8, 48), 1, 48)
	require.NoError(t, err)
	const pull, layer, slot = 1 << 48, 1, 1 << 8
	for name, c := range map[string]struct {
		keys    []tensor.Key
		tensors []tensor.Tensor
		want    string
	}{
		"no tensor":       {nil, nil, "0 keys"},
		"layer unknown":   {[]tensor.Key{2 * layer}, []tensor.Tensor{floats(1, 48)}, "layer 2"},
		"slot unknown":    {[]tensor.Key{3 * slot}, []tensor.Tensor{floats(1, 48)}, "slot 3"},
		"pull as push":    {[]tensor.Key{pull}, []tensor.Tensor{floats(1, 48)}, "asks for"},
		"other width":     {[]tensor.Key{0}, []tensor.Tensor{floats(1, 64)}, "tokens of 48"},
		"other rank":      {[]tensor.Key{0}, []tensor.Tensor{floats(48)}, "tokens of 48"},
		"too many tokens": {[]tensor.Key{0}, []tensor.Tensor{floats(9, 48)}, "1 to 8 tokens"},
		"other type":      {[]tensor.Key{0}, []tensor.Tensor{bytes}, "worker 0"},
	} {
		t.Run(name, func(t *testing.T) {
			s := afd.Server{
				Node:   scripted{newFabric(1, 1).servers[0], &fakeRequest{keys: c.keys, tensors: c.tensors}},
				Memory: heap{}, FFN: slices[0], Workers: []stepvan.Rank{0}, MaxTokens: 8,
			}
			require.ErrorContains(t, s.Run(t.Context()), c.want)
		})
	}
	for want, s := range map[string]afd.Server{
		"MaxTokens":     {Workers: []stepvan.Rank{0}},
		"ranks":         {MaxTokens: 1},
		"micro-batches": {MaxTokens: 1, Workers: []stepvan.Rank{0}, InFlight: -1},
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
