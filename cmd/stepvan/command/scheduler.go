package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/internal/launch"
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
	given := config.Lookup(environ)
	s, warnings, err := config.FromEnv(func(name string) (string, bool) {
		value, ok := given(name)
		if name == "DMLC_ROLE" && value == "" {
			return string(stepvan.RoleScheduler), true
		}
		return value, ok
	}, environ)
	for _, w := range warnings {
		fmt.Fprintf(warnTo, "warning: %v\n", w)
	}
	if err == nil && s.Role != stepvan.RoleScheduler {
		err = &stepvan.ConfigError{Key: "DMLC_ROLE", Value: string(s.Role), Reason: "this command is the scheduler: unset it, or start the program of that role"}
	}
	return s, err
}

// runScheduler serves until every node has left, or a signal comes.
func runScheduler(ctx context.Context, s config.Settings, out io.Writer) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM)
	defer signal.Stop(signals)
	go func() {
		select {
		case got := <-signals:
			number, _ := got.(unix.Signal)
			stop(&launch.Interrupted{Signal: number})
		case <-ctx.Done():
		}
	}()
	node, err := ps.Start(ctx, s, ps.ReadFrom(config.OfProcess), ps.OnListen(func(port int) {
		if s.RootPort == 0 {
			fmt.Fprintf(out, "DMLC_PS_ROOT_PORT=%d\n", port)
		}
	}))
	if err == nil {
		err = node.Stop(ctx)
	}
	var interrupted *launch.Interrupted
	if errors.As(context.Cause(ctx), &interrupted) {
		return interrupted
	}
	return err
}
