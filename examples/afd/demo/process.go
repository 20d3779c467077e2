package demo

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"

	"github.com/stepvan/stepvan/examples/afd"
	"github.com/stepvan/stepvan/examples/afd/model"
	"github.com/stepvan/stepvan/examples/afd/modelfiles"
	"github.com/stepvan/stepvan/examples/afd/safetensors"
	"github.com/stepvan/stepvan/examples/afd/tokenizer"
	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/trace"
)

// Process is what a process needs to know besides its environment.
type Process struct {
	ModelDir         string
	Query            string
	Workers, Servers int
	Synthetic        bool
	Exchanges        int
	Output           io.Writer // for the progress
}

// Result is what a worker reports to the process that started it.
type Result struct {
	Embeddings []model.Embedding
	Query      model.Embedding // from worker 0 only
	Vans       ps.Connections  // which vans carried tensors, and why
	Trace      []trace.Entry
}

// maxTokens is the limit of a micro-batch. Both sides must know it.
const maxTokens = 256

// Worker is the program of a worker process. It embeds its share of the sentences, and
// writes a Result to out with encoding/gob.
func Worker(ctx context.Context, p Process, out io.Writer) error {
	node, err := ps.StartFromEnv(ctx)
	if err != nil {
		return err
	}
	r := Result{Vans: node.Connections()}
	if p.Synthetic {
		err = p.push(ctx, node)
	} else {
		err = p.embed(ctx, node, &r)
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

// embed runs the attention side over this worker's share. Worker 0 embeds the query as well.
func (p Process) embed(ctx context.Context, node *ps.Node, r *Result) error {
	rank := int(node.Rank())
	lo, hi := afd.Share(len(afd.Sentences()), rank, p.Workers)
	texts := afd.Sentences()[lo:hi]
	if rank == 0 {
		texts = append(append([]string(nil), texts...), p.Query)
	}
	files, err := OpenModel(p.ModelDir)
	if err != nil {
		return err
	}
	defer files.Close()
	batches, err := files.Pack(texts)
	if err != nil {
		return err
	}
	attention, err := model.LoadAttention(files.Config, files.Weights)
	if err != nil {
		return err
	}
	program := afd.Worker{
		Node: node, Attention: attention, Servers: p.Servers, Progress: p.progress(len(texts)),
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
func (p Process) progress(sentences int) func(done, total int) {
	shown := 0
	return func(done, total int) {
		if quarter := done * 4 / total; quarter > shown {
			shown = quarter
			_, _ = fmt.Fprintf(p.Output, "%3d %% of %d sentences embedded\n", 100*done/total, sentences)
		}
	}
}

// Server is the program of a server process. It computes its slice of every FFN.
func Server(ctx context.Context, p Process) error {
	node, err := ps.StartFromEnv(ctx)
	if err != nil {
		return err
	}
	if p.Synthetic {
		err = p.answer(ctx, node)
	} else {
		err = p.feedForward(ctx, node)
	}
	return errors.Join(err, node.Stop(ctx))
}

func (p Process) feedForward(ctx context.Context, node *ps.Node) error {
	files, err := OpenModel(p.ModelDir)
	if err != nil {
		return err
	}
	defer files.Close()
	slice, err := model.LoadFFN(files.Config, files.Weights, int(node.Rank()), p.Servers)
	if err != nil {
		return err
	}
	program := afd.Server{
		Node: node, FFN: slice, Workers: p.Workers, MaxTokens: maxTokens,
	}
	return program.Run(ctx)
}

// Model is the opened files of a model.
type Model struct {
	Config    model.Config
	Weights   *safetensors.File
	tokenizer *tokenizer.Tokenizer
}

// OpenModel opens the files in dir; "" is the user's cache. Call Close when nothing is left to load.
func OpenModel(dir string) (*Model, error) {
	files, err := modelfiles.Find(dir)
	if err != nil {
		return nil, err
	}
	m := &Model{}
	if m.Config, err = model.OpenConfig(files.Config); err != nil {
		return nil, err
	}
	if m.tokenizer, err = tokenizer.Open(files.Tokenizer); err != nil {
		return nil, err
	}
	m.Weights, err = safetensors.Open(files.Weights)
	return m, err
}

// Close closes the file of the weights.
func (m *Model) Close() { _ = m.Weights.Close() }

// Pack turns texts into micro-batches.
func (m *Model) Pack(texts []string) ([]model.Batch, error) {
	ids := make([][]int32, len(texts))
	for i, t := range texts {
		ids[i] = m.tokenizer.Encode(t)
	}
	return model.Pack(ids, maxTokens)
}
