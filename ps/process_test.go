package ps_test

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/ps"
)

var long = flag.Bool("long", false, "run the soak tests in their long form")

// programEnv names the program that a re-executed test binary runs instead of tests.
const (
	programEnv = "PSTEST_PROGRAM"
	countEnv   = "PSTEST_COUNT"
	containEnv = "PSTEST_CONTAIN"    // ps.ContainPanics
	denyEnv    = "PSTEST_DENY_MEMFD" // memfd_create is refused, as by the seccomp profile of a container
)

func TestMain(m *testing.M) {
	name := os.Getenv(programEnv)
	if name == "" {
		os.Exit(m.Run())
	}
	program, ok := programs[name]
	if !ok {
		fmt.Fprintf(os.Stderr, "no program %q\n", name)
		os.Exit(2)
	}
	if os.Getenv(denyEnv) != "" {
		if err := denyMemoryFiles(); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
	}
	if !runProgram(program) {
		os.Exit(1)
	}
	fmt.Println("done")
}

// programs are what child processes run. They print "started", then "done" or "error: ...".
var programs = map[string]func(ctx context.Context, n *ps.Node) error{
	// A scheduler has nothing to do.
	"scheduler": func(context.Context, *ps.Node) error { return nil },
	"serve":     serve,
	// tolerate serves until nobody is left, however they went.
	"tolerate": func(ctx context.Context, n *ps.Node) error {
		if err := serve(ctx, n); !errors.Is(err, stepvan.ErrClosed) {
			return err
		}
		return nil
	},
	"work": func(ctx context.Context, n *ps.Node) error {
		count, err := strconv.Atoi(os.Getenv(countEnv))
		if err != nil {
			return err
		}
		return work(ctx, n, 4096, count)
	},
	// idle does nothing until the cluster no longer works.
	"idle": func(ctx context.Context, n *ps.Node) error {
		select {
		case <-n.Done():
			return n.Err()
		case <-ctx.Done():
			return ctx.Err()
		}
	},
	// bereave waits for the end of a barrier over all roles, since somebody dies, and then enters many barriers of
	// peers.
	"bereave": func(ctx context.Context, n *ps.Node) error {
		if err := n.Barrier(ctx, ps.Servers|ps.Workers|ps.Peers, true); !errors.Is(err, stepvan.ErrPeerLost) {
			return fmt.Errorf("nobody has died: %w", err)
		}
		return passBarriers(ctx, n)
	},
	// outlive enters barriers of peers until one of them dies, and continues alone.
	"outlive": func(ctx context.Context, n *ps.Node) error {
		for {
			if err := n.Barrier(ctx, ps.Peers, true); err != nil {
				fmt.Println("lost", strings.ReplaceAll(err.Error(), "\n", "; "))
				return n.Err()
			}
		}
	},
	// mourn waits until the cluster no longer works, and returns the peers that the errors of all operations name.
	"mourn": func(ctx context.Context, n *ps.Node) error {
		<-n.Done()
		failed := []error{n.Err(), n.Barrier(ctx, ps.Servers|ps.Workers, true)}
		if n.Role() == ps.RoleWorker {
			_, err := n.PushPull(nil, nil, nil, nil)
			failed = append(failed, err)
		} else {
			_, err := n.GetBatch(ctx, ps.AnyReady)
			failed = append(failed, err)
		}
		var about []string
		for _, err := range append(failed, n.Stop(ctx)) {
			op := &stepvan.OpError{Peer: "nobody"}
			errors.As(err, &op)
			name, _, _ := strings.Cut(op.Peer, " (") // where it is follows
			about = append(about, name)
		}
		return fmt.Errorf("about %q", slices.Compact(about))
	},
	// blame exchanges until that fails, and returns the peer that the error names.
	"blame": func(ctx context.Context, n *ps.Node) error {
		err := work(ctx, n, 4096, 1<<30)
		op := &stepvan.OpError{Peer: "nobody"}
		errors.As(err, &op)
		name, _, _ := strings.Cut(op.Peer, " (")
		return fmt.Errorf("about %q: %w", name, err)
	},
	// quit serves until that fails, and ends without Stop.
	"quit": func(ctx context.Context, n *ps.Node) error {
		if err := serve(ctx, n); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		return nil
	},
	"barrier": func(ctx context.Context, n *ps.Node) error { return n.Barrier(ctx, ps.Servers|ps.Workers, true) },
	// ask sends one request that is not answered.
	"ask": func(ctx context.Context, n *ps.Node) error {
		c, err := newClient(n, 0, 64)
		if err != nil {
			return err
		}
		h, err := c.begin()
		if err != nil {
			return err
		}
		return h.Wait(ctx)
	},
}

// passBarriers enters a hundred barriers of peers.
func passBarriers(ctx context.Context, n *ps.Node) error {
	for range 100 {
		if err := n.Barrier(ctx, ps.Peers, true); err != nil {
			return err
		}
	}
	return n.Err()
}

// runProgram runs a program on a node of the environment, stops the node, and reports whether all went well.
func runProgram(program func(context.Context, *ps.Node) error) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 20*bound)
	defer cancel()
	opts := []ps.Option{ps.OnListen(func(port int) { fmt.Println("port", port) })}
	if os.Getenv(containEnv) != "" {
		opts = append(opts, ps.ContainPanics())
	}
	n, err := ps.StartFromEnv(ctx, opts...)
	if err != nil {
		return fine("start", err)
	}
	fmt.Println("started")
	fmt.Println("vans", n.Connections())
	ok := fine("program", program(ctx, n))
	return fine("stop", n.Stop(ctx)) && ok
}

func fine(what string, err error) bool {
	if err != nil {
		fmt.Println("error:", what+":", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return err == nil
}

// process is a child.
type process struct {
	name  string
	cmd   *exec.Cmd
	lines chan string // of its standard output; closed at its end
}

// spawn starts a program with settings. fit may change the command.
func spawn(t testing.TB, program string, s ps.Settings, count int, fit func(string, *exec.Cmd)) *process {
	t.Helper()
	p := &process{name: fmt.Sprintf("%s %d", s.Role, s.NodeRank), lines: make(chan string, 16)}
	p.cmd = command(program, s, countEnv+"="+strconv.Itoa(count))
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if fit != nil {
		fit(p.name, p.cmd)
	}
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	go func() {
		for sc := bufio.NewScanner(out); sc.Scan(); {
			p.lines <- sc.Text()
		}
		close(p.lines)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		for range p.lines {
		}
		_ = p.cmd.Wait()
	})
	return p
}

// expect returns the rest of the first line that begins with prefix.
func (p *process) expect(ctx context.Context, prefix string) (string, error) {
	for {
		select {
		case line, more := <-p.lines:
			if rest, ok := strings.CutPrefix(line, prefix); ok {
				return strings.TrimSpace(rest), nil
			}
			if strings.HasPrefix(line, "error:") {
				return "", fmt.Errorf("%s: %s", p.name, line)
			}
			if !more {
				return "", fmt.Errorf("%s ended without %q", p.name, prefix)
			}
		case <-ctx.Done():
			return "", fmt.Errorf("%s did not print %q: %w", p.name, prefix, ctx.Err())
		}
	}
}

// command is this binary, to run a program with settings and further variables.
func command(program string, s ps.Settings, more ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(config.Clean(os.Environ()), s.Env()...)
	cmd.Env = append(append(cmd.Env, more...), programEnv+"="+program)
	return cmd
}

// family is a cluster of processes.
type family struct {
	t                       testing.TB
	scheduler               *process
	servers, workers, peers []*process
}

// raise starts a process for each node of c with the program of its role, and returns when all have started.
func raise(t testing.TB, van vanKind, c shape, server, worker string, count int) *family {
	t.Helper()
	f := launch(t, van, c, server, worker, count)
	f.all(limited(t), "started")
	return f
}

// launch is raise for a cluster that need not start.
func launch(t testing.TB, van vanKind, c shape, server, worker string, count int) *family {
	t.Helper()
	all, _ := c.settings(van)
	f := &family{t: t, scheduler: spawn(t, "scheduler", all[0], 0, c.fit)}
	text, err := f.scheduler.expect(limited(t), "port")
	require.NoError(t, err)
	port, err := strconv.Atoi(text)
	require.NoError(t, err)
	for _, s := range all[1:] {
		s.RootPort = port
		switch s.Role {
		case ps.RoleServer:
			f.servers = append(f.servers, spawn(t, server, s, count, c.fit))
		case ps.RolePeer:
			f.peers = append(f.peers, spawn(t, c.peer, s, count, c.fit))
		default:
			f.workers = append(f.workers, spawn(t, worker, s, count, c.fit))
		}
	}
	return f
}

func (f *family) processes() []*process {
	return slices.Concat([]*process{f.scheduler}, f.servers, f.peers, f.workers)
}

// all expects a line of every process that is not left out.
func (f *family) all(ctx context.Context, prefix string, but ...*process) []string {
	f.t.Helper()
	var wg sync.WaitGroup
	var mu sync.Mutex
	var out []string
	var bad []error
	for _, p := range f.processes() {
		if len(but) > 0 && p == but[0] {
			continue
		}
		wg.Go(func() {
			text, err := p.expect(ctx, prefix)
			mu.Lock()
			defer mu.Unlock()
			out = append(out, p.name+": "+text)
			bad = append(bad, err)
		})
	}
	wg.Wait()
	require.NoError(f.t, errors.Join(bad...))
	return out
}
