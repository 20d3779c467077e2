package afd_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/examples/afd"
	"github.com/stepvan/stepvan/examples/afd/model"
	"github.com/stepvan/stepvan/examples/afd/modelfiles"
	"github.com/stepvan/stepvan/examples/afd/safetensors"
	"github.com/stepvan/stepvan/examples/afd/tokenizer"
)

// requireModel names the variable that makes a missing model a failure.
const requireModel = "STEPVAN_TEST_REQUIRE_MODEL"

var fetched = sync.OnceValues(func() (modelfiles.Files, error) {
	dir, _ := os.LookupEnv("STEPVAN_TEST_MODEL_DIR")
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	return modelfiles.Fetch(ctx, dir, nil)
})

// needModel gives the real model, as the demo finds it. Without it the test is
// skipped, or fails where STEPVAN_TEST_REQUIRE_MODEL=1.
func needModel(t testing.TB) modelfiles.Files {
	t.Helper()
	files, err := fetched()
	if err == nil {
		return files
	}
	if v, _ := os.LookupEnv(requireModel); v == "1" {
		t.Fatalf("%s=1, but: %v", requireModel, err)
	}
	t.Skipf("NOT TESTED AGAINST THE REAL MODEL (set %s=1 to make this a failure): %v", requireModel, err)
	return modelfiles.Files{}
}

func loadModel(t testing.TB, files modelfiles.Files, parts int) (*model.Attention, []*model.FFNSlice) {
	t.Helper()
	c, err := model.OpenConfig(files.Config)
	require.NoError(t, err)
	f, err := safetensors.Open(files.Weights)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	a, err := model.LoadAttention(c, f)
	require.NoError(t, err)
	slices := make([]*model.FFNSlice, parts)
	for part := range slices {
		slices[part], err = model.LoadFFN(c, f, part, parts)
		require.NoError(t, err)
	}
	return a, slices
}

// torchFixture is what testdata/make_fixture.py wrote.
type torchFixture struct {
	Origin    string
	Width     int
	Sentences []struct {
		Text string
		IDs  []int32
	}
	embeddings []model.Embedding
}

func readTorchFixture(t testing.TB) torchFixture {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", "embeddings.json"))
	require.NoError(t, err)
	var f torchFixture
	require.NoError(t, json.Unmarshal(raw, &f))
	raw, err = os.ReadFile(filepath.Join("testdata", "embeddings.f32"))
	require.NoError(t, err)
	require.Len(t, raw, 4*f.Width*len(f.Sentences))
	for range f.Sentences {
		e := make(model.Embedding, f.Width)
		for i := range e {
			e[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
		}
		f.embeddings, raw = append(f.embeddings, e), raw[4*f.Width:]
	}
	return f
}

func TestRealTokenizerEqualsReference(t *testing.T) {
	tok, err := tokenizer.Open(needModel(t).Tokenizer)
	require.NoError(t, err)
	raw, err := os.ReadFile(filepath.Join("tokenizer", "testdata", "cases.json"))
	require.NoError(t, err)
	var cases []struct {
		Text string
		Full []int32
	}
	require.NoError(t, json.Unmarshal(raw, &cases))
	for _, c := range cases {
		require.Equal(t, c.Full, tok.Encode(c.Text), "%q", c.Text)
	}
	for _, s := range readTorchFixture(t).Sentences {
		require.Equal(t, s.IDs, tok.Encode(s.Text), "%q", s.Text)
	}
}

func TestRealEmbeddingsEqualTorch(t *testing.T) {
	files := needModel(t)
	fixture := readTorchFixture(t)
	var ids [][]int32
	for _, s := range fixture.Sentences {
		ids = append(ids, s.IDs)
	}
	batches, err := model.Pack(ids, 256)
	require.NoError(t, err)
	a, slices := loadModel(t, files, 2)
	got, err := model.Run(a, slices, batches)
	require.NoError(t, err)
	worst, largest := 1.0, 0.0
	for i, want := range fixture.embeddings {
		cosine := model.Cosine(want, got[i])
		require.GreaterOrEqual(t, cosine, 0.9999, "%q", fixture.Sentences[i].Text)
		worst = min(worst, cosine)
		for j := range want {
			largest = max(largest, math.Abs(float64(want[j])-float64(got[i][j])))
		}
	}
	require.Less(t, largest, 1e-5)
	t.Logf("%d sentences against %s: least cosine %.9f, largest difference %.2g", len(got), fixture.Origin, worst, largest)
}

// vansOfMachine join the nodes of a cluster here; RDMA in a machine with software RDMA (scripts/test-rdma.sh).
func vansOfMachine() []config.Van {
	vans := []config.Van{config.VanTCP, config.VanShm}
	if os.Getenv("STEPVAN_TEST_REQUIRE_RDMA") != "" {
		vans = append(vans, config.VanRDMA)
	}
	return vans
}

// A few sentences have the same embeddings over every van, bit for bit: those of one process.
func TestRealEmbeddingsAreTheSameOverEachVan(t *testing.T) {
	var ids [][]int32
	for _, s := range readTorchFixture(t).Sentences[:3] {
		ids = append(ids, s.IDs)
	}
	const maxTokens, workers, servers = 64, 1, 2
	batches, err := model.Pack(ids, maxTokens)
	require.NoError(t, err)
	a, slices := loadModel(t, needModel(t), servers)
	want, err := model.Run(a, slices, batches)
	require.NoError(t, err)
	for _, van := range vansOfMachine() {
		t.Run(string(van), func(t *testing.T) {
			requireSameBits(t, want, startOver(t, van, workers, servers).embed(a, slices, maxTokens, ids))
		})
	}
}

func BenchmarkRealRun(b *testing.B) {
	files := needModel(b)
	tok, err := tokenizer.Open(files.Tokenizer)
	require.NoError(b, err)
	var ids [][]int32
	tokens := 0
	for _, s := range afd.Sentences() {
		ids = append(ids, tok.Encode(s))
		tokens += len(ids[len(ids)-1])
	}
	batches, err := model.Pack(ids, 256)
	require.NoError(b, err)
	a, slices := loadModel(b, files, 2)
	for b.Loop() {
		_, err := model.Run(a, slices, batches)
		require.NoError(b, err)
	}
	b.ReportMetric(float64(tokens), "tokens")
	b.ReportMetric(float64(len(batches)), "batches")
}
