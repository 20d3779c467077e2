package command

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// waiting is a command that prints its pid, and a line when it is asked to end.
const waiting = `trap 'echo asked; exit 0' TERM; echo $$; while :; do sleep 0.01; done`

// pid reads what waiting says first.
func (p *program) pid(t *testing.T) int {
	t.Helper()
	text := p.line(t)
	if _, after, prefixed := strings.Cut(text, "| "); prefixed {
		text = after
	}
	pid, err := strconv.Atoi(strings.TrimSpace(text))
	require.NoError(t, err)
	return pid
}

// sessionIsEmpty fails the test when a process of a session is alive.
func sessionIsEmpty(t *testing.T, session int) {
	t.Helper()
	require.ErrorIs(t, unix.Kill(-session, 0), unix.ESRCH, "somebody of process group %d is left", session)
}

func TestLaunchACluster(t *testing.T) {
	for flags, carrier := range map[string]string{"": "shm (same machine)", "--van shm": "shm (same machine)", "--van tcp": "tcp (STEPVAN_VAN=tcp)"} {
		args := append([]string{"launch", "-n", "2w2s"}, strings.Fields(flags)...)
		code, out, errOut := run(t, append(args, os.Args[0], asNode)...)
		require.Zero(t, code, errOut)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		slices.Sort(lines)
		require.Equal(t, []string{
			"server 0  | server 0 here", "server 1  | server 1 here",
			"worker 0  | worker 0 here", "worker 1  | worker 1 here",
		}, lines)
		require.NotContains(t, errOut, `{"level"`, "logs are for people")
		require.Contains(t, errOut, "launch    | a scheduler, 2 servers and 2 workers; tensors by "+carrier+"\n")
		require.Contains(t, errOut, "servers 0-1: "+carrier)
		require.Contains(t, errOut, "workers 0-1: "+carrier)
	}
}

func TestLaunchGroups(t *testing.T) {
	code, out, errOut := run(t, "launch", "-n", "1w1s", "--group-size", "2", "--no-prefix", "--", os.Args[0], asNode)
	require.Zero(t, code, errOut)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	slices.Sort(lines)
	require.Equal(t, []string{"server 0 here", "server 1 here", "worker 0 here", "worker 1 here"}, lines)
	require.NotContains(t, errOut, "tensors by", "with lines as they are launch has none of its own")
}

func TestLaunchOtherCommands(t *testing.T) {
	code, out, errOut := run(t, "launch", "--server-command", "echo I serve", "--scheduler-command", "echo I schedule", "echo", "-n", "I work")
	require.Zero(t, code, errOut)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	slices.Sort(lines)
	require.Equal(t, []string{"scheduler | I schedule", "server 0  | I serve", "worker 0  | I work"}, lines)
}

func TestLaunchPeers(t *testing.T) {
	const tell = `echo $DMLC_ROLE $DMLC_NODE_RANK/$STEPMESH_GPU of $DMLC_NUM_WORKER $DMLC_NUM_SERVER $STEPVAN_NUM_PEER`
	for _, c := range []struct {
		args    []string
		opening string
		lines   []string
	}{
		{[]string{"-n", "2p"}, "a scheduler and 2 peers", []string{"peer 0    | peer 0/ of 0 0 2", "peer 1    | peer 1/ of 0 0 2"}},
		{[]string{"-n", "1p", "--group-size", "2"}, "a scheduler and 2 peers", []string{"peer 0    | peer 0/ of 0 0 1", "peer 1    | peer 0/1 of 0 0 1"}},
		{[]string{"-n", "1w1s1p", "--peer-command", "echo I am a peer"}, "a scheduler, 1 server, 1 peer and 1 worker",
			[]string{"peer 0    | I am a peer", "server 0  | server 0/ of 1 1 1", "worker 0  | worker 0/ of 1 1 1"}},
	} {
		args := append([]string{"launch", "--scheduler-command", "true"}, c.args...)
		code, out, errOut := run(t, append(args, "--", "sh", "-c", tell)...)
		require.Zero(t, code, errOut)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		slices.Sort(lines)
		require.Equal(t, c.lines, lines)
		require.Contains(t, errOut, "launch    | "+c.opening+"; tensors by ")
	}
}

func TestLaunchNamesTheFirstFailure(t *testing.T) {
	code, _, errOut := run(t, "launch", "-n", "3w", "--", "sh", "-c", `if [ $DMLC_NODE_RANK = 1 ]; then echo oh no >&2; exit 5; fi; sleep 600`)
	require.Equal(t, 5, code)
	require.Contains(t, errOut, "stepvan launch: worker 1 failed: exit status 5; its last lines:\n    oh no\n")
}

func TestLaunchRefuses(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--", "no-such-program-anywhere"}, 127, "is not in PATH"},
		{[]string{"--van", "pigeon", "--", "true"}, 1, "STEPVAN_VAN"},
		{[]string{"--van", "mem", "--", "true"}, 1, "set auto, shm or tcp"},
		{[]string{"--group-size", "-3", "--", "true"}, codeUsage, "--group-size: too small (got -3, want 1 or more)"},
		{[]string{"--group-size", "0", "--", "true"}, codeUsage, "--group-size: too small (got 0, want 1 or more)"},
		{[]string{"--grace", "0s", "--", "true"}, codeUsage, "--grace: too short (got 0s, want above 0)"},
		{[]string{"--grace", "-1s", "--", "true"}, codeUsage, "--grace: too short (got -1s, want above 0)"},
		{[]string{"--timeout", "0s", "--", "true"}, codeUsage, "--timeout: too short (got 0s, want above 0)"},
		{[]string{"--timeout", "-5s", "--", "true"}, codeUsage, "--timeout: too short (got -5s, want above 0)"},
	} {
		code, out, errOut := run(t, append([]string{"launch"}, c.args...)...)
		require.Equal(t, c.code, code, "%q", c.args)
		require.Contains(t, errOut, c.want)
		require.Empty(t, out)
	}
}

// What no process could start with is refused before any is started, under the name that the user has set.
func TestLaunchNamesTheVariableThatIsRefused(t *testing.T) {
	t.Setenv("STEPMESH_BAKCEND", "dcu")
	code, out, errOut := run(t, "launch", "-n", "1w1s", "--", os.Args[0], asNode)
	require.Equal(t, 1, code)
	require.Empty(t, out)
	require.Regexp(t, `^stepvan launch: STEPMESH_BAKCEND="dcu": this build has no driver`, errOut)
	t.Setenv("STEPMESH_BAKCEND", "")
	t.Setenv("DMLC_ENABLE_RDMA", "ibverbs")
	code, _, errOut = run(t, "launch", "--van", "auto", "--", "true")
	require.Zero(t, code, errOut)
	// What overrules reaches programs that set the other variable themselves.
	code, out, errOut = run(t, "launch", "-n", "1w", "--van", "auto", "--", "sh", "-c", "echo van=$STEPVAN_VAN")
	require.Zero(t, code, errOut)
	require.Contains(t, out, "van=auto")
	t.Setenv("STEPVAN_VAN", "auto")
	code, out, errOut = run(t, "launch", "-n", "1w", "--", "sh", "-c", "echo van=$STEPVAN_VAN")
	require.Zero(t, code, errOut)
	require.Contains(t, out, "van=auto")
	require.NoError(t, os.Unsetenv("STEPVAN_VAN"))
	// On one machine memory is shared, so what StepMesh's scripts set needs no device.
	code, _, errOut = run(t, "launch", "-n", "1w1s", "--", os.Args[0], asNode)
	require.Zero(t, code, errOut)
}

func TestLaunchTimeout(t *testing.T) {
	code, _, errOut := run(t, "launch", "--timeout", "50ms", "--", "sleep", "600")
	require.Equal(t, 124, code)
	require.Contains(t, errOut, "--timeout 50ms has passed")
	require.NotContains(t, errOut, "context deadline exceeded")
	require.Contains(t, errOut, "still running: scheduler, server 0, worker 0")
}

func TestCtrlC(t *testing.T) {
	p := start(t, "launch", "-n", "1w", "--grace", "1h", "--", "sh", "-c", waiting)
	pid := p.pid(t)
	require.NoError(t, p.Process.Signal(unix.SIGINT))
	rest, err := io.ReadAll(p.out)
	require.NoError(t, err)
	require.Error(t, p.Wait())
	require.Equal(t, 130, p.ProcessState.ExitCode(), "%s", &p.errOut)
	require.Equal(t, "worker 0  | asked\n", string(rest))
	require.Contains(t, p.errOut.String(), "stepvan launch: stopped by SIGINT\n")
	sessionIsEmpty(t, pid)
}

// Ctrl-C is tested as well where the process of the tests was started to ignore it, as a job in the background is.
func TestCtrlCInTheBackground(t *testing.T) {
	job := exec.CommandContext(t.Context(), "sh", "-c", `trap "" INT HUP; exec "$0" -test.run="^TestCtrlC(Twice)?$" -test.timeout=100s`, os.Args[0])
	out, err := job.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "PASS")
}

func TestCtrlCTwice(t *testing.T) {
	p := start(t, "launch", "-n", "1w", "--grace", "1h", "--", "sh", "-c", `trap 'echo asked' TERM; echo $$; while :; do sleep 0.01; done`)
	pid := p.pid(t)
	require.NoError(t, p.Process.Signal(unix.SIGINT))
	require.Contains(t, p.line(t), "asked")
	require.NoError(t, p.Process.Signal(unix.SIGINT))
	require.Error(t, p.Wait())
	require.Equal(t, 130, p.ProcessState.ExitCode(), "%s", &p.errOut)
	sessionIsEmpty(t, pid)
}

func TestOutputClosed(t *testing.T) {
	p := start(t, "launch", "-n", "1w", "--", "sh", "-c", "echo $$; while echo y; do :; done")
	pid := p.pid(t)
	require.NoError(t, p.stdout.Close())
	require.Error(t, p.Wait())
	require.Equal(t, 141, p.ProcessState.ExitCode(), "%s", &p.errOut)
	sessionIsEmpty(t, pid)
}

func TestAKilledLauncherTakesItsChildrenWithIt(t *testing.T) {
	for name, script := range map[string]string{
		"a child":                   waiting,
		"what a child has started":  `sh -c "$0" & wait`,
		"what has left the session": `setsid sh -c "$0" & wait`,
		"a daemon":                  `(setsid sh -c "$0" &); sleep 600`,
		"an orphan":                 `sh -c "$0" &`,
		"a run within the run":      os.Args[0] + ` launch -n 1w --no-prefix -- sh -c '(setsid sh -c "$0" &); sleep 600' "$0"`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t, "launch", "-n", "1w", "--no-prefix", "--server-command", "sleep 600", "--", "sh", "-c", script, waiting)
			process, err := unix.PidfdOpen(p.pid(t), 0)
			require.NoError(t, err)
			defer func() { _ = unix.Close(process) }()
			require.NoError(t, p.Process.Kill())
			ends(t, process)
			require.Error(t, p.Wait())
		})
	}
}

// ends waits for the end of a process, some seconds at most.
func ends(t *testing.T, process int) {
	t.Helper()
	var n int
	var err error
	for deadline := time.Now().Add(20 * time.Second); n == 0 && time.Now().Before(deadline); {
		n, err = unix.Poll([]unix.PollFd{{Fd: int32(process), Events: unix.POLLIN}}, 1000)
		if !errors.Is(err, unix.EINTR) {
			require.NoError(t, err)
		}
		n = max(n, 0)
	}
	require.Equal(t, 1, n, "it lives on")
}

func TestSchedulerTakesAFreePort(t *testing.T) {
	for name, value := range map[string]string{"DMLC_NUM_WORKER": "1", "DMLC_NUM_SERVER": "1", "DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_PS_ROOT_PORT": "0"} {
		t.Setenv(name, value)
	}
	p := start(t, "scheduler")
	require.Regexp(t, regexp.MustCompile(`^DMLC_PS_ROOT_PORT=[1-9]\d*\n$`), p.line(t))
	require.NoError(t, p.Process.Signal(unix.SIGTERM))
	require.Error(t, p.Wait())
	require.Equal(t, 143, p.ProcessState.ExitCode(), "%s", &p.errOut)
	require.Contains(t, p.errOut.String(), "stepvan scheduler: stopped by SIGTERM")
}

func TestSchedulerOfAnotherRole(t *testing.T) {
	place(t, "worker")
	t.Setenv("STEPVAN_VNA", "1")
	code, _, errOut := run(t, "scheduler")
	require.Equal(t, 1, code)
	require.Contains(t, errOut, `DMLC_ROLE="worker": this command is the scheduler`)
	require.Contains(t, errOut, fmt.Sprintf("warning: STEPVAN_VNA=%q", "1"))
}
