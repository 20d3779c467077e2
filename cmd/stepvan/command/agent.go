package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/bus"
	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/ps"
)

// agentFlags are what the command line says.
type agentFlags struct {
	socket string
	queue  int
}

func newAgent() *cobra.Command {
	var f agentFlags
	c := &cobra.Command{
		Use:   "agent",
		Short: "Run an agent of the tensor bus for the processes of this user",
		Long: `agent is a peer of a cluster. It moves tensors between jobs whose layouts differ, on
behalf of the processes of this user on this machine. They reach it by a socket, whose path
it prints. The tensors lie in memory that the agent shares with them.

It needs the settings of a peer, and ends when it is told to, or when the cluster has lost
the scheduler.`,
		Example: `    STEPVAN_NUM_PEER=2 DMLC_PS_ROOT_URI=10.0.0.1 DMLC_PS_ROOT_PORT=9000 stepvan agent
    stepvan launch -n 2p -- stepvan agent`,
		GroupID: groupRun,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := agentSettings(os.Environ(), c.ErrOrStderr())
			if err != nil {
				return err
			}
			return runAgent(c.Context(), s, &f, c.OutOrStdout())
		},
	}
	c.Flags().StringVar(&f.socket, "socket", "", "path of the socket (default: in the folder of this user, by port and rank)")
	c.Flags().IntVar(&f.queue, "queue", 50_000, "how many commands of a client may wait")
	return c
}

// agentSettings reads the environment. DMLC_ROLE may be missing. The memory of other processes is not read.
func agentSettings(environ []string, warnTo io.Writer) (config.Settings, error) {
	s, err := settingsOf(stepvan.RolePeer, environ, warnTo, "an agent is a peer")
	s.PeerMemory = false
	return s, err
}

const (
	// closeTime is how long the clients of an agent that ends may keep it.
	closeTime = 5 * time.Second
	// leaveTime is how long the other nodes may take to let it go.
	leaveTime = time.Second
)

// runAgent serves until a signal comes, or the node ends.
func runAgent(ctx context.Context, s config.Settings, f *agentFlags, out io.Writer) error {
	return untilSignal(ctx, func(ctx context.Context) error {
		node, err := ps.Start(ctx, s, ps.ReadFrom(config.OfProcess))
		if err != nil {
			return err
		}
		return serveAgent(ctx, node, s.RootPort, f, out)
	})
}

// serveAgent runs the agent of a node, and stops the node.
func serveAgent(ctx context.Context, node *ps.Node, port int, f *agentFlags, out io.Writer) error {
	agent, err := bus.NewAgent(ctx, node.Peer(), node.Board(), bus.Options{
		Queue: f.queue, Memory: node.Memory(), Recover: func() {
			if v := recover(); v != nil {
				_ = node.Panicked(v, "serve the tensor bus")
			}
		},
	})
	if err != nil {
		return errors.Join(err, node.Close())
	}
	path := f.socket
	if path == "" {
		path = bus.SocketPath(port, node.Rank())
	}
	if _, err = agent.Listen(path); err == nil {
		fmt.Fprintf(out, "agent %d at %s\n", node.Rank(), path)
		select {
		case <-ctx.Done():
		case <-node.Done():
			err = node.Err()
		}
	}
	short, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	err = errors.Join(err, agent.Close(short))
	if node.Err() == nil {
		leaving, cancel := context.WithTimeout(context.Background(), leaveTime)
		defer cancel()
		_ = node.Stop(leaving) // Close ends a node that others keep
	}
	return errors.Join(err, node.Close())
}
