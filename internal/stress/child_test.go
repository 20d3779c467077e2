package stress

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/ps"
)

// Limits of waits, reached only when something hangs.
const (
	bound     = 60 * time.Second
	soakBound = 30 * time.Minute // for what takes long in the long form
)

// child is a process of this binary.
type child struct {
	t      testing.TB
	name   string // as errors name it: "server 1"
	cmd    *exec.Cmd
	orders *json.Encoder
	events chan event // closed at the end of its output
	kept   []event    // that came while another was waited for
}

// spawn starts a process with settings and a job.
func spawn(t testing.TB, s ps.Settings, j job, env ...string) *child {
	t.Helper()
	c := &child{t: t, name: string(s.Role), events: make(chan event, 256)}
	if s.Role != ps.RoleScheduler {
		c.name = fmt.Sprintf("%s %d", s.Role, s.NodeRank)
	}
	text, err := json.Marshal(j)
	require.NoError(t, err)
	c.cmd = exec.Command(os.Args[0])
	c.cmd.Env = append(append(config.Clean(os.Environ()), s.Env()...), jobEnv+"="+string(text))
	c.cmd.Env = append(append(c.cmd.Env, env...), "GORACE=atexit_sleep_ms=0") // else each end takes a second under the race detector
	c.cmd.Stderr = os.Stderr
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := c.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := c.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.cmd.Start())
	c.orders = json.NewEncoder(in)
	go c.read(out)
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		for range c.events {
		}
		_ = c.cmd.Wait()
	})
	return c
}

func (c *child) read(out io.Reader) {
	defer close(c.events)
	for d := json.NewDecoder(out); ; {
		var e event
		if d.Decode(&e) != nil {
			return
		}
		c.events <- e
	}
}

// tell sends a command.
func (c *child) tell(cmd command) {
	c.t.Helper()
	require.NoError(c.t, c.orders.Encode(cmd), "%s takes no orders", c.name)
}

// await returns the next event of a kind for which that says yes (nil: any), and
// keeps others for later. What must never happen fails the test whenever it comes.
func (c *child) await(k kind, that func(event) bool) event {
	c.t.Helper()
	return c.awaitFor(bound, k, that)
}

// awaitLog returns when a line of the log contains a text.
func (c *child) awaitLog(text string) {
	c.t.Helper()
	c.await(evLog, func(e event) bool { return strings.Contains(e.Text, text) })
}

// awaitFor is await with a limit.
func (c *child) awaitFor(limit time.Duration, k kind, that func(event) bool) event {
	c.t.Helper()
	return c.next(limit, string(k), func(e event) bool { return e.Kind == k && (that == nil || that(e)) })
}

func (c *child) next(limit time.Duration, what string, fits func(event) bool) event {
	c.t.Helper()
	_, e := first(limit, what, fits, c)
	return e
}

// first returns the first event that fits of any of several children.
func first(limit time.Duration, what string, fits func(event) bool, all ...*child) (*child, event) {
	t := all[0].t
	t.Helper()
	late := time.NewTimer(limit)
	defer late.Stop()
	cases := []reflect.SelectCase{{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(late.C)}}
	for _, c := range all {
		if i := slices.IndexFunc(c.kept, fits); i >= 0 {
			e := c.kept[i]
			c.kept = slices.Delete(c.kept, i, i+1)
			return c, e
		}
		cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(c.events)})
	}
	for {
		i, v, more := reflect.Select(cases)
		require.NotZero(t, i, "it hangs: %s and %d others do not say %q; it has said %+v", all[0].name, len(all)-1, what, all[0].kept)
		e, _ := v.Interface().(event)
		if c := all[i-1]; c.take(e, more, what, fits) {
			return c, e
		}
	}
}

// take judges an event: is it what is waited for, to be kept, or the failure of the test?
func (c *child) take(e event, more bool, what string, fits func(event) bool) bool {
	c.t.Helper()
	require.True(c.t, more, "%s ended without %q; it has said %+v", c.name, what, c.kept)
	require.NotEqual(c.t, evWrong, e.Kind, "%s: %s", c.name, e.Text)
	if fits(e) {
		return true
	}
	c.kept = append(c.kept, e)
	over := e.Kind == evEnded && e.PID == c.cmd.Process.Pid // others write there if it has children
	require.False(c.t, over, "%s ended before %q; it has said %+v", c.name, what, c.kept)
	return false
}

// sample asks for the vitals.
func (c *child) sample() vitals {
	c.t.Helper()
	c.tell(command{Do: doSample})
	return *c.await(evSample, nil).Vitals
}

// end waits for the orderly end of a process that left nothing behind, and returns what its Stop has said.
func (c *child) end() string {
	c.t.Helper()
	e := c.await(evEnded, nil)
	require.Empty(c.t, e.Leaks, "%s has left something behind", c.name)
	c.gone()
	return e.Text
}

// gone waits until the process of a child that has said evEnded has ended well.
func (c *child) gone() {
	c.t.Helper()
	for e := range c.events {
		require.NotEqual(c.t, evWrong, e.Kind, "%s: %s", c.name, e.Text)
	}
	require.NoError(c.t, c.cmd.Wait(), c.name)
}

// signal sends a signal.
func (c *child) signal(s syscall.Signal) {
	c.t.Helper()
	require.NoError(c.t, c.cmd.Process.Signal(s), c.name)
}

// kill ends the process at once, and returns the moment before.
func (c *child) kill() int64 {
	c.t.Helper()
	at := clock()
	c.signal(syscall.SIGKILL)
	return at
}

// freeze stops the process, and returns when it stands still.
func (c *child) freeze() {
	c.t.Helper()
	c.signal(syscall.SIGSTOP)
	stat := fmt.Sprintf("/proc/%d/stat", c.cmd.Process.Pid)
	for end := time.Now().Add(bound); ; time.Sleep(100 * time.Microsecond) { // only the parent's wait reports it, which os/exec does
		text, err := os.ReadFile(stat)
		require.NoError(c.t, err)
		if state(text) == 'T' {
			return
		}
		require.True(c.t, time.Now().Before(end), "%s does not stop", c.name)
	}
}

// private makes a directory for the files of a cluster. Its path is short, as that of a socket must be.
func private(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sv")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// files lists what is in a directory and below, folders left out.
func files(t testing.TB, dir string) (out []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			out = append(out, path)
		}
		return err
	}))
	return out
}
