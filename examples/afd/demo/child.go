package demo

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/examples/afd"
	"github.com/stepvan/stepvan/examples/afd/model"
	"github.com/stepvan/stepvan/examples/afd/modelfiles"
	"github.com/stepvan/stepvan/examples/afd/safetensors"
	"github.com/stepvan/stepvan/examples/afd/tokenizer"
	"github.com/stepvan/stepvan/internal/launch"
	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/server"
	"github.com/stepvan/stepvan/trace"
	"github.com/stepvan/stepvan/worker"
)

// Child is what a process of the run needs to know besides its environment.
type Child struct {
	ModelDir         string
	Query            string
	Workers, Servers int
	Synthetic        bool
	Exchanges        int
	Output           io.Writer // progress for people
}

// result is what a worker hands to the parent.
type result struct {
	Embeddings []model.Embedding
	Query      model.Embedding // of worker 0
	Vans       ps.Connections  // what carried tensors, and why
	Trace      []trace.Entry
}

// Worker is the program of a worker process: its share of the sentences.
func Worker(ctx context.Context, c Child) error {
	out, err := launch.ResultFile()
	if err != nil {
		return fmt.Errorf("%w; run `stepvan demo`, which starts this", err)
	}
	defer func() { _ = out.Close() }()
	node, err := ps.StartFromEnv(ctx)
	if err != nil {
		return err
	}
	r := result{Vans: node.Connections()}
	if c.Synthetic {
		err = c.push(ctx, node)
	} else {
		err = c.embed(ctx, node, &r)
	}
	if err != nil {
		return errors.Join(err, node.Stop(ctx))
	}
	r.Trace = node.Trace()
	if err := node.Stop(ctx); err != nil {
		return err
	}
	return gob.NewEncoder(out).Encode(&r)
}

// embed runs the attention side over this worker's share, and the query on worker 0.
func (c Child) embed(ctx context.Context, node *ps.Node, r *result) error {
	rank := int(node.Rank())
	lo, hi := afd.Share(len(afd.Sentences()), rank, c.Workers)
	texts := afd.Sentences()[lo:hi]
	if rank == 0 {
		texts = append(append([]string(nil), texts...), c.Query)
	}
	files, err := openModel(c.ModelDir)
	if err != nil {
		return err
	}
	defer files.close()
	batches, err := files.pack(texts)
	if err != nil {
		return err
	}
	attention, err := model.LoadAttention(files.config, files.weights)
	if err != nil {
		return err
	}
	program := afd.Worker[worker.Handle]{
		Exchange: node.Worker(), Memory: node.Memory(), Attention: attention,
		Rank: node.Rank(), Servers: c.Servers, Progress: c.progress(len(texts)),
	}
	all, err := program.Run(ctx, batches)
	if err != nil {
		return err
	}
	r.Embeddings = all[:hi-lo]
	if rank == 0 {
		r.Query = all[hi-lo]
	}
	return nil
}

// progress prints a line for each quarter.
func (c Child) progress(sentences int) func(done, total int) {
	shown := 0
	return func(done, total int) {
		if quarter := done * 4 / total; quarter > shown {
			shown = quarter
			_, _ = fmt.Fprintf(c.Output, "%3d %% of %d sentences embedded\n", 100*done/total, sentences)
		}
	}
}

// Server is the program of a server process: its slice of every FFN.
func Server(ctx context.Context, c Child) error {
	node, err := ps.StartFromEnv(ctx)
	if err != nil {
		return err
	}
	if c.Synthetic {
		err = c.answer(ctx, node)
	} else {
		err = c.feedForward(ctx, node)
	}
	return errors.Join(err, node.Stop(ctx))
}

func (c Child) feedForward(ctx context.Context, node *ps.Node) error {
	files, err := openModel(c.ModelDir)
	if err != nil {
		return err
	}
	defer files.close()
	slice, err := model.LoadFFN(files.config, files.weights, int(node.Rank()), c.Servers)
	if err != nil {
		return err
	}
	program := afd.Server[server.Request, server.Response]{
		Inbox: afd.InboxOf(node.Server()), Memory: node.Memory(), FFN: slice,
		Workers: ranks(c.Workers), MaxTokens: maxTokens,
	}
	return program.Run(ctx)
}

func ranks(n int) []stepvan.Rank {
	all := make([]stepvan.Rank, n)
	for i := range all {
		all[i] = stepvan.Rank(i)
	}
	return all
}

// opened is the model, ready to be loaded from.
type opened struct {
	config    model.Config
	weights   *safetensors.File
	tokenizer *tokenizer.Tokenizer
}

func openModel(dir string) (*opened, error) {
	files, err := modelfiles.Find(dir)
	if err != nil {
		return nil, err
	}
	o := &opened{}
	if o.config, err = model.OpenConfig(files.Config); err != nil {
		return nil, err
	}
	if o.tokenizer, err = tokenizer.Open(files.Tokenizer); err != nil {
		return nil, err
	}
	o.weights, err = safetensors.Open(files.Weights)
	return o, err
}

func (o *opened) close() { _ = o.weights.Close() }

func (o *opened) pack(texts []string) ([]model.Batch, error) {
	ids := make([][]int32, len(texts))
	for i, t := range texts {
		ids[i] = o.tokenizer.Encode(t)
	}
	return model.Pack(ids, maxTokens)
}
