package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/stepvan/stepvan/internal/launch"
)

// exitGrace is how long a node that broke its connection may take to end with its own error, which
// says more.
const exitGrace = 2 * time.Second

// runCluster runs a measurement. Its nodes connect with the coordinator over a Unix socket.
func runCluster(ctx context.Context, o *Options, t *turn) (*Report, error) {
	folder, err := os.MkdirTemp("", "stepvan-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "control")
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	inside, err := newControlGroup(o.Cores.Quota)
	if err != nil {
		return nil, err
	}
	defer func() { _ = inside.close() }() // its folder would be the only thing left
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	coordinated := make(chan Outcome, 1)
	go func() { coordinated <- coordinate(ctx, newCoordinator(o, t, inside), l, cancel) }()
	var ran error
	if o.inOneProcess() {
		ran = o.runInside(ctx, path)
	} else {
		ran = launch.Run(ctx, o.plan(nodeArgs{Control: path}, inside))
	}
	l.Close()   // ends the coordinator when it still waits for nodes
	cancel(ran) // or for the turn
	got := <-coordinated
	return got.Report, o.explainMissing(chooseError(ran, got.Err))
}

// coordinate waits for the nodes and runs the coordinator. After an error it ends the run.
func coordinate(ctx context.Context, c *coordinator, l net.Listener, cancel context.CancelCauseFunc) (got Outcome) {
	defer c.close()
	if got.Err = c.accept(l); got.Err == nil {
		got.Report, got.Err = c.run(ctx)
	}
	if errors.Is(got.Err, errConnLost) {
		time.AfterFunc(exitGrace, func() { cancel(got.Err) })
	} else if got.Err != nil {
		cancel(got.Err)
	}
	return got
}

// accept waits until all nodes have connected.
func (c *coordinator) accept(l net.Listener) error {
	for range len(c.workers) + len(c.servers) {
		conn, err := l.Accept()
		if err != nil {
			return fmt.Errorf("%w before it was there: %w", errConnLost, err)
		}
		if err := c.registerNode(newControlConn(conn)); err != nil {
			return err
		}
	}
	return nil
}

// chooseError returns the error that says most: that of the run, unless the coordinator's error
// ended the run.
func chooseError(ran, coordinated error) error {
	if coordinated != nil && (ran == nil || errors.Is(ran, coordinated)) {
		return coordinated
	}
	return ran
}
