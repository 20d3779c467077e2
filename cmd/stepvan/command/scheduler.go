package command

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/ps"
)

func newScheduler() *cobra.Command {
	return &cobra.Command{
		Use:   "scheduler",
		Short: "Run the scheduler of a cluster until every node has left",
		Long: `scheduler connects the nodes of a cluster: it assigns ranks, holds barriers, and reports
lost nodes to the others. It carries no tensors. ` + "`stepvan launch`" + ` starts a scheduler
itself; a cluster over several machines needs one, at DMLC_PS_ROOT_URI.

It ends when every node has left or is dead. With DMLC_PS_ROOT_PORT=0 it takes a
free port and prints it.`,
		Example: `    DMLC_NUM_WORKER=2 DMLC_NUM_SERVER=2 DMLC_PS_ROOT_URI=10.0.0.1 DMLC_PS_ROOT_PORT=9000 \
    stepvan scheduler`,
		GroupID: groupRun,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := schedulerSettings(os.Environ(), c.ErrOrStderr())
			if err != nil {
				return err
			}
			return runScheduler(c.Context(), s, c.OutOrStdout())
		},
	}
}

// schedulerSettings reads the environment. DMLC_ROLE may be missing.
func schedulerSettings(environ []string, warnTo io.Writer) (config.Settings, error) {
	return settingsOf(stepvan.RoleScheduler, environ, warnTo, "this command is the scheduler")
}

// runScheduler serves until every node has left, or a signal comes.
func runScheduler(ctx context.Context, s config.Settings, out io.Writer) error {
	return untilSignal(ctx, func(ctx context.Context) error {
		node, err := ps.Start(ctx, s, ps.ReadFrom(config.OfProcess), ps.OnListen(func(port int) {
			if s.RootPort == 0 {
				fmt.Fprintf(out, "DMLC_PS_ROOT_PORT=%d\n", port)
			}
		}))
		if err != nil {
			return err
		}
		return node.Stop(ctx)
	})
}
