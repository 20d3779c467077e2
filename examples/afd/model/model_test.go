package model_test

import (
	"math"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/examples/afd/model"
	"github.com/stepvan/stepvan/examples/afd/model/modeltest"
)

const seed = 7

// load gives both halves of the small model, cut into parts.
func load(t testing.TB, parts int) (*model.Attention, []*model.FFNSlice) {
	t.Helper()
	c := modeltest.Config()
	f, err := modeltest.File(c, seed)
	require.NoError(t, err)
	a, err := model.LoadAttention(c, f)
	require.NoError(t, err)
	var slices []*model.FFNSlice
	for part := range parts {
		s, err := model.LoadFFN(c, f, part, parts)
		require.NoError(t, err)
		slices = append(slices, s)
	}
	return a, slices
}

// sentences are long enough that their scores take several panels.
func sentences(t testing.TB, n int) [][]int32 {
	t.Helper()
	return modeltest.Sentences(modeltest.Config(), n, 78, seed)
}

func pack(t testing.TB, s [][]int32, maxTokens int) []model.Batch {
	t.Helper()
	batches, err := model.Pack(s, maxTokens)
	require.NoError(t, err)
	return batches
}

func run(t testing.TB, parts int, batches []model.Batch) []model.Embedding {
	t.Helper()
	a, slices := load(t, parts)
	out, err := model.Run(a, slices, batches)
	require.NoError(t, err)
	return out
}

func TestRunEqualsFormulas(t *testing.T) {
	s := sentences(t, 12)
	f, err := modeltest.File(modeltest.Config(), seed)
	require.NoError(t, err)
	r := &reference{t, modeltest.Config(), f}
	for _, parts := range []int{1, 2, 3, 10} {
		got := run(t, parts, pack(t, s, 300))
		require.Len(t, got, len(s))
		for i := range s {
			for j, want := range r.embed(s[i]) {
				require.InDelta(t, want, got[i][j], 2e-6, "parts %d sentence %d element %d", parts, i, j)
			}
		}
	}
}

// requireSameBits compares as integers, so that a NaN or a negative zero counts.
func requireSameBits(t testing.TB, want, got []model.Embedding) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		for j := range want[i] {
			require.Equal(t, math.Float32bits(want[i][j]), math.Float32bits(got[i][j]), "sentence %d element %d", i, j)
		}
	}
}

func TestBitsDoNotDependOnBatches(t *testing.T) {
	s := sentences(t, 20)
	requireSameBits(t, run(t, 2, pack(t, s, 78)), run(t, 2, pack(t, s, 1000)))
}

func TestBitsDoNotDependOnCores(t *testing.T) {
	batches := pack(t, sentences(t, 20), 100)
	want := run(t, 2, batches)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	requireSameBits(t, want, run(t, 2, batches))
}

// A server's input and output lie where the transport put them.
func TestPartialDoesNotDependOnAddresses(t *testing.T) {
	_, slices := load(t, 2)
	f := slices[1]
	h := f.Config().Hidden
	const tokens = 70
	x := make([]float32, tokens*h+16)
	for i := range x {
		x[i] = float32(math.Sin(float64(i % (tokens * h))))
	}
	want := make([]float32, tokens*h)
	s := f.Scratch(tokens)
	f.Partial(1, x[:tokens*h], want, s)
	for shift := 1; shift < 16; shift++ {
		moved, got := make([]float32, tokens*h+16), make([]float32, tokens*h+16)
		copy(moved[shift:], x[:tokens*h])
		f.Partial(1, moved[shift:][:tokens*h], got[shift:][:tokens*h], f.Scratch(tokens))
		for i := range want {
			require.Equal(t, math.Float32bits(want[i]), math.Float32bits(got[shift+i]), "shift %d element %d", shift, i)
		}
	}
}

// The steps of a layer run once per layer and micro-batch on a worker or server:
// their budget is 0 allocations.
func TestStepsDoNotAllocate(t *testing.T) {
	a, slices := load(t, 1)
	b := pack(t, sentences(t, 12), 1000)[0]
	x := make([]float32, b.Tokens()*a.Config().Hidden)
	out := make([]float32, len(x))
	partials := [][]float32{out}
	s, inner := a.Scratch(b.Tokens()), slices[0].Scratch(b.Tokens())
	require.Zero(t, testing.AllocsPerRun(5, func() {
		a.Embed(b, x)
		a.Attend(0, b, x, s)
		slices[0].Partial(0, x, out, inner)
		a.Combine(0, x, partials)
	}))
}

func TestRunRefuses(t *testing.T) {
	a, slices := load(t, 2)
	for name, c := range map[string]struct {
		slices  []*model.FFNSlice
		batches []model.Batch
		want    string
	}{
		"no slices":        {nil, nil, "end at column 0 of 160"},
		"order":            {[]*model.FFNSlice{slices[1], slices[0]}, nil, "begins at column 80"},
		"missing end":      {slices[:1], nil, "end at column 80"},
		"id too large":     {slices, []model.Batch{{IDs: []int32{97}, Ends: []int{1}}}, "outside the vocabulary"},
		"id negative":      {slices, []model.Batch{{IDs: []int32{-1}, Ends: []int{1}}}, "outside the vocabulary"},
		"empty batch":      {slices, []model.Batch{{}}, "must end"},
		"ends early":       {slices, []model.Batch{{IDs: []int32{1, 2}, Ends: []int{1}}}, "must end"},
		"empty sentence":   {slices, []model.Batch{{IDs: []int32{1}, Ends: []int{0, 1}}}, "0 tokens"},
		"ends backwards":   {slices, []model.Batch{{IDs: []int32{1, 2}, Ends: []int{2, 1, 2}}}, "-1 tokens"},
		"sentence is long": {slices, []model.Batch{{IDs: make([]int32, 81), Ends: []int{81}}}, "81 tokens"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := model.Run(a, c.slices, c.batches)
			require.ErrorContains(t, err, c.want)
		})
	}
	other := modeltest.Config()
	other.Epsilon = 1e-5
	f, err := modeltest.File(other, seed)
	require.NoError(t, err)
	foreign, err := model.LoadFFN(other, f, 0, 1)
	require.NoError(t, err)
	_, err = model.Run(a, []*model.FFNSlice{foreign}, nil)
	require.ErrorContains(t, err, "another model")
}

func TestLoadRefuses(t *testing.T) {
	f, err := modeltest.File(modeltest.Config(), seed)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		change func(*model.Config)
		want   string
	}{
		"more layers": {func(c *model.Config) { c.Layers = 3 }, "not in the file"},
		"other shape": {func(c *model.Config) { c.Vocabulary = 98 }, "config.json asks for F32"},
		"bad config":  {func(c *model.Config) { c.Heads = 5 }, "hidden_size 48"},
	} {
		t.Run(name, func(t *testing.T) {
			bad := modeltest.Config()
			c.change(&bad)
			_, err := model.LoadAttention(bad, f)
			require.ErrorContains(t, err, c.want)
			_, err = model.LoadFFN(bad, f, 0, 1)
			require.ErrorContains(t, err, c.want)
		})
	}
	_, err = model.LoadFFN(modeltest.Config(), f, 0, 11)
	require.ErrorContains(t, err, "1 to 10 parts")
}

func TestPack(t *testing.T) {
	got, err := model.Pack([][]int32{{1, 2}, {3}, {4, 5}, {6, 7, 8}}, 3)
	require.NoError(t, err)
	require.Equal(t, []model.Batch{
		{IDs: []int32{1, 2, 3}, Ends: []int{2, 3}},
		{IDs: []int32{4, 5}, Ends: []int{2}},
		{IDs: []int32{6, 7, 8}, Ends: []int{3}},
	}, got)
	for _, bad := range [][]int32{{}, {1, 2, 3, 4}} {
		_, err := model.Pack([][]int32{bad}, 3)
		require.ErrorContains(t, err, "1 to 3")
	}
	got, err = model.Pack(nil, 3)
	require.NoError(t, err)
	require.Empty(t, got)
}

func TestNearest(t *testing.T) {
	corpus := []model.Embedding{{1, 0}, {0, 1}, {0.6, 0.8}, {0, 1}}
	require.Equal(t, []model.Match{{1, 1}, {3, 1}, {2, 0.8}}, model.Nearest(corpus, model.Embedding{0, 1}, 3))
	require.Len(t, model.Nearest(corpus, corpus[0], 9), 4)
	require.Empty(t, model.Nearest(corpus, corpus[0], -1))
}

func BenchmarkLayer(b *testing.B) {
	a, slices := load(b, 1)
	batch := pack(b, sentences(b, 12), 1000)[0]
	x := make([]float32, batch.Tokens()*a.Config().Hidden)
	out := make([]float32, len(x))
	s, inner := a.Scratch(batch.Tokens()), slices[0].Scratch(batch.Tokens())
	a.Embed(batch, x)
	b.ReportAllocs()
	for b.Loop() {
		a.Attend(0, batch, x, s)
		slices[0].Partial(0, x, out, inner)
		a.Combine(0, x, [][]float32{out})
	}
}
