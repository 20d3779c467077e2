package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/bus"
	"github.com/stepvan/stepvan/internal/errs"
)

// busClient is the process of a client of the tensor bus, as its node sees it. It takes the commands of a node over a
// socket that it inherits. When the node ends, so does the client: the socket breaks.
type busClient struct {
	conn    *controlConn
	process *exec.Cmd
}

// clientFD is the descriptor of the socket in the process of the client.
const clientFD = 3

// clientGrace is how long that process may take to end.
const clientGrace = 10 * time.Second

func startBusClient(ctx context.Context, s *Options, args nodeArgs) (*busClient, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, errs.Descriptors(err)
	}
	here, there := os.NewFile(uintptr(fds[0]), "client"), os.NewFile(uintptr(fds[1]), "node")
	defer here.Close()
	defer there.Close()
	conn, err := net.FileConn(here)
	if err != nil {
		return nil, err
	}
	line := slices.Concat(s.Node, args.list())
	c := &busClient{conn: newControlConn(conn), process: exec.CommandContext(ctx, line[0], line[1:]...)}
	c.conn.name = "the client of the bus"
	c.process.Stderr, c.process.ExtraFiles = os.Stderr, []*os.File{there}
	if err := c.process.Start(); err != nil {
		conn.Close()
		return nil, err
	}
	if _, err := c.do(command{Verb: verbPrepare, Spec: s}); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// do gives the client a command and waits for its reply.
func (c *busClient) do(cmd command) (r reply, err error) {
	if err := c.conn.send(cmd); err != nil {
		return r, fmt.Errorf("%s: %w", c.conn.name, err)
	}
	return r, c.conn.receiveReply(&r)
}

// close ends the process.
func (c *busClient) close() error {
	c.conn.Close()
	defer time.AfterFunc(clientGrace, func() { _ = c.process.Process.Kill() }).Stop()
	if err := c.process.Wait(); err != nil {
		return fmt.Errorf("%s: %w", c.conn.name, err)
	}
	return nil
}

// runBusClient is the program of that process.
func runBusClient(ctx context.Context, agent string, sends bool) error {
	f := os.NewFile(clientFD, "node")
	conn, err := net.FileConn(f)
	if err != nil {
		return err
	}
	_ = f.Close()
	defer conn.Close()
	c, err := bus.Dial(ctx, agent, bus.ClientOptions{Rank: 0})
	if err != nil {
		return err
	}
	node, t := newControlConn(conn), (*transfers)(nil)
	for {
		var cmd command
		if node.receive(&cmd) != nil { // the node has ended
			return c.Close(ctx)
		}
		if cmd.Verb == verbPrepare && cmd.Spec != nil {
			t = newTransfers(c, sends, cmd.Spec.Push, newLatencies())
		}
		r, err := t.follow(ctx, &cmd)
		if err != nil {
			r = &reply{Error: err.Error()}
		}
		if err := node.send(r); err != nil {
			return errors.Join(err, c.Close(ctx))
		}
	}
}

// follow runs a command of the node.
func (t *transfers) follow(ctx context.Context, c *command) (*reply, error) {
	switch {
	case t == nil:
	case c.Verb == verbPrepare:
		return &reply{}, nil
	case c.Verb == verbCheck:
		return &reply{}, t.check(ctx, c.Count)
	case c.Verb == verbMeasure:
		return new(Options).measured(func() error { return t.run(ctx, c.Count) })
	case c.Verb == verbReport:
		return &reply{Counts: t.times.counts()}, nil
	}
	return nil, errs.Invalid("a client of the bus has no command %q: use the same version for all processes", c.Verb)
}
