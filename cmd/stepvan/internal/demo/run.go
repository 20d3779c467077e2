package demo

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/examples/afd"
	process "github.com/stepvan/stepvan/examples/afd/demo"
	"github.com/stepvan/stepvan/examples/afd/model"
	"github.com/stepvan/stepvan/examples/afd/modelfiles"
	"github.com/stepvan/stepvan/internal/launch"
	"github.com/stepvan/stepvan/internal/shm"
	"github.com/stepvan/stepvan/trace"
)

// Run embeds the sentences with the split model. It fails when the embeddings differ
// from those of one process. Errors name the process that failed.
func Run(ctx context.Context, o Options) error {
	if err := o.check(); err != nil {
		return err
	}
	if !o.Synthetic {
		if _, err := modelfiles.Fetch(ctx, o.ModelDir, func(line string) { o.say("%s", line) }); err != nil {
			return err
		}
	}
	traces, remove, err := shm.Scratch(shm.SocketDir(), "demo")
	if err != nil {
		return fmt.Errorf("directory for the traces: %w", err)
	}
	defer func() { _ = remove() }()
	o.introduce()
	began := time.Now()
	results, err := o.launch(ctx, traces)
	if err != nil {
		return err
	}
	took := time.Since(began)
	if err := o.report(results, took); err != nil {
		return err
	}
	return o.mergeTraces(traces)
}

func (o *Options) say(format string, args ...any) {
	_, _ = fmt.Fprintf(o.Output, format+"\n", args...)
}

// launch runs all processes and returns the workers' results by rank.
func (o *Options) launch(ctx context.Context, traces string) ([]process.Result, error) {
	worker, err := o.command("worker")
	if err != nil {
		return nil, err
	}
	server, err := o.command("server")
	if err != nil {
		return nil, err
	}
	results := make([]process.Result, o.Workers)
	var broken error
	err = launch.Run(ctx, launch.Plan{
		Workers: o.Workers, Servers: o.Servers, GroupSize: 1, Worker: worker, Server: server, Self: o.Self,
		Env: []string{
			"STEPVAN_BATCH=any", // workers may have different numbers of micro-batches
			"STEPVAN_TRACE_FILE=" + filepath.Join(traces, "{role}-{rank}.json"),
			"STEPVAN_LOG_LEVEL=warn",
		},
		Stdout: o.Output, Stderr: o.Errors, Prefix: true, Color: o.Color, Signals: o.Signals,
		Result: func(c launch.Child, b []byte) {
			if c.Role == stepvan.RoleWorker {
				if err := gob.NewDecoder(bytes.NewReader(b)).Decode(&results[c.Rank]); err != nil {
					broken = fmt.Errorf("result of %v: %w", c, err)
				}
			}
		},
	})
	return results, errors.Join(err, broken)
}

// command is this program as a process of the run.
func (o *Options) command(role string) ([]string, error) {
	args := []string{"demo", role, "--workers", strconv.Itoa(o.Workers), "--servers", strconv.Itoa(o.Servers)}
	if o.Synthetic {
		args = append(args, "--synthetic", "--exchanges", strconv.Itoa(o.Exchanges))
	} else {
		args = append(args, "--model", o.ModelDir, "--query", o.Query)
	}
	return o.Self.Command(args...)
}

// reference computes the same split in this process.
func (o *Options) reference() ([]model.Embedding, error) {
	files, err := process.OpenModel(o.ModelDir)
	if err != nil {
		return nil, err
	}
	defer files.Close()
	batches, err := files.Pack(afd.Sentences())
	if err != nil {
		return nil, err
	}
	attention, err := model.LoadAttention(files.Config, files.Weights)
	if err != nil {
		return nil, err
	}
	slices := make([]*model.FFNSlice, o.Servers)
	for i := range slices {
		if slices[i], err = model.LoadFFN(files.Config, files.Weights, i, o.Servers); err != nil {
			return nil, err
		}
	}
	return model.Run(attention, slices, batches)
}

// mergeTraces merges the trace files of all processes into one.
func (o *Options) mergeTraces(dir string) (err error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(names) == 0 {
		return errors.Join(err, errors.New("the processes left no traces"))
	}
	readers := make([]io.Reader, len(names))
	for i, name := range names {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		readers[i] = f
	}
	out, err := os.Create(o.Trace)
	if err != nil {
		return fmt.Errorf("trace: %w: name another file with --trace", err)
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if err := trace.Merge(out, readers...); err != nil {
		return err
	}
	o.say("\nTrace of every exchange: %s (drop it on https://ui.perfetto.dev, or open chrome://tracing)", o.Trace)
	return nil
}
