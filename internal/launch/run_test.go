package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/internal/shm"
)

func TestMain(m *testing.M) {
	Unignore()
	os.Exit(m.Run())
}

// forever is a command that ends only on a signal.
var forever = sh("sleep 600")

func sh(script string) []string { return []string{"sh", "-c", script} }

// watched is a writer that reports when a text has been written.
type watched struct {
	mu   sync.Mutex
	text bytes.Buffer
	want map[string]chan struct{}
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text.Write(p)
	for text, seen := range w.want {
		if strings.Contains(w.text.String(), text) {
			close(seen)
			delete(w.want, text)
		}
	}
	return len(p), nil
}

// has returns a channel that is closed when text has been written.
func (w *watched) has(text string) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.want == nil {
		w.want = map[string]chan struct{}{}
	}
	seen := make(chan struct{})
	if strings.Contains(w.text.String(), text) {
		close(seen)
	} else {
		w.want[text] = seen
	}
	return seen
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// pids remembers the children, and fails the test if a process of their sessions, or one of extra,
// still lives at its end.
type pids struct {
	t        *testing.T
	children []Child
}

func (p *pids) started(c Child) { p.children = append(p.children, c) }

func (p *pids) noneLeft(extra ...int) {
	p.t.Helper()
	mine := map[int]bool{}
	for _, c := range p.children {
		mine[c.PID] = true
	}
	for _, pid := range extra {
		mine[pid] = true
	}
	for _, q := range processes() {
		require.False(p.t, mine[q.pid] || mine[q.session], "left behind: %+v", q)
	}
}

// launch fills in the missing parts of a plan, runs it, and checks that no process is left.
func launch(t *testing.T, plan Plan) (out, errOut string, err error) {
	t.Helper()
	stdout, stderr := &watched{}, &watched{}
	who := &pids{t: t}
	started := plan.Started
	plan.Started = func(c Child) {
		who.started(c)
		if started != nil {
			started(c)
		}
	}
	if plan.Stdout == nil {
		plan.Stdout = stdout
	}
	if plan.Stderr == nil {
		plan.Stderr = stderr
	}
	if plan.Scheduler == nil {
		plan.Scheduler = sh(":")
	}
	err = Run(t.Context(), plan)
	who.noneLeft()
	return stdout.String(), stderr.String(), err
}

func TestOutputIsPrefixed(t *testing.T) {
	out, errOut, err := launch(t, Plan{
		Workers: 2, Servers: 1, Prefix: true,
		Worker:    sh("echo I am $DMLC_ROLE $DMLC_NODE_RANK; printf 'no end'"),
		Server:    sh("echo serving; echo warning >&2"),
		Scheduler: sh("echo $DMLC_PS_ROOT_URI"),
	})
	require.NoError(t, err)
	require.ElementsMatch(t, []string{
		"scheduler | 127.0.0.1", "server 0  | serving",
		"worker 0  | I am worker 0", "worker 0  | no end",
		"worker 1  | I am worker 1", "worker 1  | no end",
	}, strings.Split(strings.TrimSpace(out), "\n"))
	require.Equal(t, "server 0  | warning\n", errOut)
}

func TestOpeningLine(t *testing.T) {
	plan := Plan{Workers: 2, Servers: 1, Prefix: true, Worker: sh(":"), Server: sh(":"), Opening: func(s config.Settings) string {
		return fmt.Sprintf("%s of %d and %d", s.Role, s.NumWorker, s.NumServer)
	}}
	_, errOut, err := launch(t, plan)
	require.NoError(t, err)
	require.Equal(t, "launch    | scheduler of 2 and 1\n", errOut)
	plan.Prefix = false
	_, errOut, err = launch(t, plan)
	require.NoError(t, err)
	require.Empty(t, errOut)
}

func TestPrefixInColour(t *testing.T) {
	out, _, err := launch(t, Plan{Workers: 1, Prefix: true, Color: true, Worker: sh("echo x")})
	require.NoError(t, err)
	require.Equal(t, "\x1b[0;33mworker 0  |\x1b[0m x\n", out)
}

func TestOutputWithoutPrefix(t *testing.T) {
	out, errOut, err := launch(t, Plan{Workers: 1, Worker: sh("echo x; echo y >&2; exit 1")})
	require.Error(t, err)
	require.Equal(t, "x\n", out)
	require.Equal(t, "y\n", errOut, "Run itself says nothing")
}

func TestFirstFailureIsNamedAndEndsTheRun(t *testing.T) {
	_, errOut, err := launch(t, Plan{
		Workers: 2, Servers: 2, Prefix: true, Worker: forever, Scheduler: forever,
		Server: sh(`if [ $DMLC_NODE_RANK = 1 ]; then echo first >&2; echo "no such thing" >&2; exit 7; fi; sleep 600`),
	})
	var f *Failure
	require.ErrorAs(t, err, &f)
	require.Equal(t, "server 1", f.Child.String())
	require.Equal(t, 7, f.Status)
	require.Equal(t, []string{"first", "no such thing"}, f.Stderr)
	require.EqualError(t, err, "server 1 failed: exit status 7; its last lines:\n    first\n    no such thing")
	require.Equal(t, 7, ExitCode(err))
	require.Contains(t, errOut, "launch    | server 1 failed: exit status 7; stopping the others\n")
}

func TestAKilledChildIsAFailure(t *testing.T) {
	_, _, err := launch(t, Plan{
		Workers: 1, Servers: 1, Worker: forever, Server: forever, Scheduler: forever,
		Started: func(c Child) {
			if c.Role == stepvan.RoleWorker {
				require.NoError(t, unix.Kill(c.PID, unix.SIGKILL))
			}
		},
	})
	require.ErrorContains(t, err, "worker 0 failed: killed by SIGKILL")
	require.Equal(t, 137, ExitCode(err))
}

func TestAFailedSchedulerIsNamed(t *testing.T) {
	_, _, err := launch(t, Plan{Workers: 1, Worker: forever, Scheduler: sh("exit 4")})
	require.ErrorContains(t, err, "scheduler failed: exit status 4")
}

func TestASchedulerThatNobodyNeedsIsStopped(t *testing.T) {
	_, errOut, err := launch(t, Plan{Workers: 1, Servers: 1, Prefix: true, Worker: sh(":"), Server: sh(":"), Scheduler: forever})
	require.NoError(t, err)
	require.Empty(t, errOut)
}

func TestTwentyChildren(t *testing.T) {
	out, _, err := launch(t, Plan{Workers: 5, Servers: 5, GroupSize: 2, Prefix: true,
		Worker: sh("echo $DMLC_NODE_RANK $STEPMESH_GPU"), Server: sh("echo $DMLC_NODE_RANK $STEPMESH_GPU")})
	require.NoError(t, err)
	require.Equal(t, 20, strings.Count(out, "\n"))
	require.Contains(t, out, "worker 9  | 4 1\n")
	require.Contains(t, out, "server 4  | 2\n", "the first device is the default, and not written")
}

func TestGrandchildrenAreStopped(t *testing.T) {
	for name, script := range map[string]string{
		"in the background":         `sleep 600 & echo $!; sleep 600`,
		"of a child that has ended": `sleep 600 & echo $!`,
		"in a session of its own":   `setsid sh -c 'echo $$; sleep 600' & sleep 600`,
		"as a daemon":               `(setsid sh -c 'echo $$; sleep 600' &); sleep 600`,
		"ignored to SIGTERM":        `sh -c 'trap "" TERM; echo $$; while :; do sleep 600; done' & sleep 600`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := &watched{}
			first := out.has("\n")
			who := &pids{t: t}
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				<-first
				cancel()
			}()
			err := Run(ctx, Plan{Workers: 1, Worker: sh(script), Scheduler: sh(":"), Stdout: out, Grace: 200 * time.Millisecond, Started: who.started})
			if !strings.Contains(script, "echo $!") || strings.HasSuffix(script, "600") {
				require.ErrorIs(t, err, context.Canceled)
			}
			pid, convErr := strconv.Atoi(strings.TrimSpace(out.String()))
			require.NoError(t, convErr)
			who.noneLeft(pid)
		})
	}
}

func TestOrphansAreReaped(t *testing.T) {
	// The worker leaves an orphan that ends, and waits until it is gone altogether.
	out, _, err := launch(t, Plan{Workers: 1, Worker: sh(`
		pid=$(sh -c 'sh -c "echo \$\$; exec >&-; exit 0" & wait' | head -1)
		orphan=$(sh -c ': & echo $!')
		while [ -e /proc/$orphan ]; do :; done
		echo reaped $((pid > 0))`)})
	require.NoError(t, err)
	require.Equal(t, "reaped 1\n", out)
}

// An orphan may end before Run looks after what has ended.
func TestOrphansOfTheFirstMomentAreReaped(t *testing.T) {
	isOrphan := func(p process, c Child) bool { return p.zombie && p.session == c.PID && p.parent == os.Getpid() }
	out, _, err := launch(t, Plan{
		Workers: 1,
		Worker:  sh(`orphan=$(sh -c 'sleep 0.1 >&- 2>&- & echo $!'); while [ -e /proc/$orphan ]; do :; done; echo reaped`),
		Started: func(c Child) {
			if c.Role == stepvan.RoleWorker {
				ended := func() bool {
					return slices.ContainsFunc(processes(), func(p process) bool { return isOrphan(p, c) })
				}
				assert.Eventually(t, ended, 10*time.Second, time.Millisecond)
			}
		},
	})
	require.NoError(t, err)
	require.Equal(t, "reaped\n", out)
}

func TestSignals(t *testing.T) {
	polite := sh(`trap 'echo cleaned; exit 0' TERM; echo ready; while :; do sleep 0.01; done`)
	ignored := sh(`trap '' TERM; echo ready; while :; do sleep 0.01; done`)
	for name, c := range map[string]struct {
		command []string
		signals []os.Signal
		output  string
	}{
		"Ctrl-C":  {polite, []os.Signal{unix.SIGINT}, "ready\ncleaned\n"},
		"hang up": {polite, []os.Signal{unix.SIGHUP}, "ready\ncleaned\n"},
		"twice":   {ignored, []os.Signal{unix.SIGTERM, unix.SIGTERM}, "ready\n"},
	} {
		t.Run(name, func(t *testing.T) {
			out := &watched{}
			ready := out.has("ready")
			signals := make(chan os.Signal, len(c.signals))
			go func() {
				<-ready
				for _, s := range c.signals {
					signals <- s
				}
			}()
			_, _, err := launch(t, Plan{Workers: 1, Worker: c.command, Scheduler: forever, Stdout: out, Signals: signals, Grace: time.Hour})
			var i *Interrupted
			require.ErrorAs(t, err, &i)
			require.Equal(t, c.signals[0], i.Signal)
			require.Equal(t, c.output, out.String())
		})
	}
}

func TestSuspendedChildrenAreStopped(t *testing.T) {
	_, _, err := launch(t, Plan{Workers: 1, Servers: 1, Worker: sh("kill -STOP $$; :"), Server: sh("exit 1"), Scheduler: sh(":"), Grace: time.Hour})
	require.ErrorContains(t, err, "server 0 failed")
}

func TestEndOfTheContext(t *testing.T) {
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, fmt.Errorf("too late: %w", context.DeadlineExceeded))
	defer cancel()
	who := &pids{t: t}
	err := Run(ctx, Plan{Workers: 1, Servers: 1, Worker: forever, Server: forever, Scheduler: forever, Started: who.started})
	require.ErrorContains(t, err, "stopped: too late")
	require.Equal(t, 124, ExitCode(err))
	who.noneLeft()
	require.ErrorIs(t, Run(ctx, Plan{}), context.DeadlineExceeded, "and nothing is started after it")
}

func TestStoppedNamesWhoWasRunning(t *testing.T) {
	out := &watched{}
	ready := out.has("ready")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-ready
		cancel(errors.New("enough"))
	}()
	err := Run(ctx, Plan{Workers: 1, Worker: sh("echo ready; sleep 600"), Scheduler: forever, Stdout: out})
	require.EqualError(t, err, "stopped: enough; still running: scheduler, worker 0")
}

// What children that were killed have left in the directory of the sockets is gone when the run has ended.
func TestLeftSocketsAreSwept(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	require.NoError(t, os.Mkdir(shm.SocketDir(), 0o700))
	path := func(name string) string { return filepath.Join(shm.SocketDir(), name) }
	for _, name := range []string{"left", "alive"} {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path(name), Net: "unix"})
		require.NoError(t, err)
		defer func() { _ = l.Close() }()
		if l.SetUnlinkOnClose(false); name == "left" {
			require.NoError(t, l.Close())
		}
	}
	_, _, err := launch(t, Plan{Workers: 1, Worker: sh("kill -TERM $$"), Server: forever, Scheduler: forever})
	require.Error(t, err)
	require.NoFileExists(t, path("left"))
	require.FileExists(t, path("alive"))
}

func TestFlood(t *testing.T) {
	const lines = 200_000
	var n counter
	_, _, err := launch(t, Plan{Workers: 2, Servers: 2, Prefix: true, Stdout: &n,
		Worker: sh(fmt.Sprintf("seq %d", lines)), Server: sh(fmt.Sprintf("head -c %d /dev/zero", 8*maxLine))})
	require.NoError(t, err)
	require.Equal(t, 2*lines+2*8, int(n), "every line, and the line without end in parts")
}

// counter counts lines.
type counter int

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(bytes.Count(p, []byte("\n")))
	return len(p), nil
}

func TestClosedOutputEndsTheRun(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, r.Close())
	defer func() { _ = w.Close() }()
	_, _, err = launch(t, Plan{Workers: 1, Servers: 1, Worker: sh("while echo y; do :; done"), Server: forever, Scheduler: forever, Stdout: w})
	require.ErrorIs(t, err, unix.EPIPE)
	require.Equal(t, 141, ExitCode(err))
}

func TestOutputThatNobodyReadsDoesNotHoldAnInterruption(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer func() { _, _ = r.Close(), w.Close() }()
	signals := make(chan os.Signal, 2)
	blocked := make(chan struct{})
	go func() {
		defer close(blocked)
		_, _ = r.Read(make([]byte, 1)) // the flood has begun
		signals <- unix.SIGINT
		signals <- unix.SIGINT
	}()
	_, _, err = launch(t, Plan{Workers: 1, Worker: sh("while echo y; do :; done"), Scheduler: forever, Prefix: true, Stdout: w, Stderr: w, Signals: signals})
	<-blocked
	var i *Interrupted
	require.ErrorAs(t, err, &i)
}

func TestMissingCommandStartsNothing(t *testing.T) {
	_, _, err := launch(t, Plan{Workers: 1, Servers: 1, Worker: sh(":"), Server: []string{"no-such-program-anywhere"},
		Started: func(c Child) { t.Errorf("%v was started", c) }})
	require.ErrorContains(t, err, `the server's command "no-such-program-anywhere" is not in PATH`)
	require.Equal(t, 127, ExitCode(err))
}

func TestANegativeGraceIsRefused(t *testing.T) {
	_, _, err := launch(t, Plan{Workers: 1, Worker: sh(":"), Grace: -time.Second,
		Started: func(c Child) { t.Errorf("%v was started", c) }})
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	require.ErrorContains(t, err, "Plan.Grace: too short (got -1s")
}

func TestAChildThatCannotStartEndsTheRun(t *testing.T) {
	script := t.TempDir() + "/script"
	require.NoError(t, os.WriteFile(script, []byte("\x00\x01\x02"), 0o700))
	_, _, err := launch(t, Plan{Workers: 1, Servers: 1, Server: forever, Worker: []string{script}, Scheduler: forever})
	require.ErrorContains(t, err, "start worker 0")
	require.ErrorContains(t, err, "#!/bin/sh")
}

func TestResults(t *testing.T) {
	var got []string
	plan := Plan{
		Workers: 2, Servers: 1,
		Worker: sh("echo $DMLC_NODE_RANK >&3"), Server: sh("head -c 1000000 /dev/zero >&3"),
		Result: func(c Child, b []byte) {
			got = append(got, fmt.Sprintf("%v: %d %s", c, len(b), bytes.Trim(b, "\x00\n")))
		},
	}
	_, _, err := launch(t, plan)
	require.NoError(t, err)
	require.Equal(t, []string{"scheduler: 0 ", "server 0: 1000000 ", "worker 0: 2 0", "worker 1: 2 1"}, got)

	got, plan.Worker = nil, sh("echo half >&3; exit 1")
	_, _, err = launch(t, plan)
	require.Error(t, err)
	require.Empty(t, got, "a run that failed has no results")
}

func TestResultIsLimited(t *testing.T) {
	content, err := collect(io.LimitReader(zeros{}, MaxResult))
	require.NoError(t, err)
	require.Len(t, content, MaxResult)
	_, err = collect(zeros{})
	require.ErrorIs(t, err, stepvan.ErrInvalid)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func TestResultFileOfAProcessWithoutOne(t *testing.T) {
	var st unix.Stat_t
	if unix.Fstat(resultFD, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFIFO {
		t.Skip("descriptor 3 of this process is a pipe")
	}
	_, err := ResultFile()
	require.ErrorIs(t, err, stepvan.ErrInvalid)
}

func TestSignalsAreCollected(t *testing.T) {
	signals, release := Signals()
	defer release()
	require.NoError(t, unix.Kill(os.Getpid(), unix.SIGHUP))
	select {
	case s := <-signals:
		require.Equal(t, unix.SIGHUP, s)
	case <-time.After(30 * time.Second):
		require.Fail(t, "no signal came")
	}
}

// The tests pass where their process was started to ignore signals, as a job in the background is.
func TestInTheBackground(t *testing.T) {
	job := exec.CommandContext(t.Context(), "sh", "-c", `trap "" INT HUP; exec "$0" -test.run="^(TestSignalsAreCollected|TestSignals)$" -test.timeout=100s`, os.Args[0])
	out, err := job.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "PASS")
}
