package afd_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/examples/afd"
	"github.com/stepvan/stepvan/examples/afd/model"
	"github.com/stepvan/stepvan/examples/afd/model/modeltest"
	"github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/server"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/trace"
	"github.com/stepvan/stepvan/worker"
)

// Nodes with links and the node's own memory, 2 workers and 2 servers; pairtest
// fails the test when memory is not given back.
func TestSplitOverNodesEqualsOneProcess(t *testing.T) {
	const workers, servers, maxTokens = 2, 2, 100
	sentences := modeltest.Sentences(modeltest.Config(), 40, 60, 5)
	a, slices := smallModel(t, servers)
	batches, err := model.Pack(sentences, maxTokens)
	require.NoError(t, err)
	want, err := model.Run(a, slices, batches)
	require.NoError(t, err)

	ring := trace.NewRing(1024)
	c := pairtest.New(t, pairtest.Options{Workers: workers, Servers: servers, Worker: worker.Options{Trace: ring}})
	var serving, working sync.WaitGroup
	for rank, s := range c.Servers {
		serving.Go(func() {
			program := afd.Server{
				Node: &serverNode{Server: s.Server}, Memory: s.Memory, FFN: slices[rank],
				Workers: []stepvan.Rank{0, 1}, MaxTokens: maxTokens,
			}
			if err := program.Run(pairtest.Context(t)); err != nil {
				t.Errorf("server %d: %v", rank, err)
			}
		})
	}
	shares := make([][]model.Embedding, workers)
	for rank, w := range c.Workers {
		working.Go(func() {
			lo, hi := afd.Share(len(sentences), rank, workers)
			batches, err := model.Pack(sentences[lo:hi], maxTokens)
			if err != nil {
				t.Errorf("pack: %v", err)
				return
			}
			program := afd.Worker{
				Node: workerNode{w.Worker}, Memory: w.Memory, Attention: a, Rank: stepvan.Rank(rank), Servers: servers,
			}
			if shares[rank], err = program.Run(pairtest.Context(t), batches); err != nil {
				t.Errorf("worker %d: %v", rank, err)
			}
		})
	}
	working.Wait()
	for _, w := range c.Workers {
		require.NoError(t, w.Worker.Close())
		require.NoError(t, w.Transport.Close())
	}
	serving.Wait()
	requireSameBits(t, want, append(shares[0], shares[1]...))

	summary := trace.Summarize(ring.Snapshot(), trace.ByLabel)
	require.Len(t, summary.Rows, 2, "a row per layer")
	require.Equal(t, "layer 0", summary.Rows[0].Label)
	require.Positive(t, summary.Rows[0].Server.P50, "the server's part is known to the worker")
}

// workerNode and serverNode are what afd.WorkerOf and afd.ServerOf make of a whole node.
type workerNode struct{ *worker.Worker }

func (w workerNode) Do(x *ps.Exchange) (afd.Handle, error) { return w.Worker.Do(x) }

type serverNode struct {
	*server.Server
	batch server.Batch
}

func (s *serverNode) GetBatch(ctx context.Context) (requests []afd.Request, err error) {
	err = s.GetBatchInto(ctx, server.AnyReady, &s.batch)
	for _, r := range s.batch.Requests {
		requests = append(requests, afd.Request{ID: r.ID, Keys: r.PushKeys(), Tensors: r.Pushes()})
	}
	return requests, err
}

func (s *serverNode) Respond(tensors []tensor.Tensor, id ps.RequestID) (afd.Handle, error) {
	return s.Server.Respond(tensors, id)
}

func (s *serverNode) RegisterRecvBuffer(t tensor.Tensor, ranks []ps.Rank, keys []tensor.Key) (afd.Registration, error) {
	return s.Server.RegisterRecvBuffer(t, ranks, keys)
}
