package peertest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/ps"
)

// vanOfProcesses is a van between processes.
type vanOfProcesses struct {
	name   string
	shares bool
	apply  func(*ps.Settings)
}

// vansOfProcesses are all. Over shared memory, a peer reads foreign memory where it is, or has it copied.
var vansOfProcesses = []vanOfProcesses{
	{"shm", true, func(s *ps.Settings) { s.Van = config.VanShm }},
	{"shm-copied", true, func(s *ps.Settings) { s.Van, s.PeerMemory = config.VanShm, false }},
	{"unix", false, func(s *ps.Settings) { s.Van, s.Local = config.VanTCP, true }},
	{"tcp", false, func(s *ps.Settings) { s.Van = config.VanTCP }},
}

// folder is where the folders of clusters are.
var folder = os.TempDir()

// rounds is how often each case runs in the long form. Each round has its own random numbers.
const rounds = 10

// Each member is in a process of its own, and the cluster has a scheduler. The short form runs what processes do
// differently from goroutines, over shared memory.
func TestCasesInProcessesStress(t *testing.T) {
	short := []string{"plans", "windows", "death in a run", "death while a plan is made", "death beside transfers", "leave"}
	for _, v := range vansOfProcesses {
		for _, c := range Cases() {
			if !*long && (v.name != "shm" || !slices.Contains(short, c.Name)) {
				continue
			}
			t.Run(v.name+"/"+c.Name, func(t *testing.T) {
				for seed := range uint64(rounds) {
					if found := checkProcesses(t, v, job{Case: c.Name, Seed: seed + 1}, c.size); found != "" {
						t.Errorf("seed %d: %s", seed+1, found)
					}
					if !*long {
						break
					}
				}
			})
		}
	}
}

// Cases find mutations between processes as well. In the short form one case does for each mutation.
func TestMutationsInProcessesAreCaughtStress(t *testing.T) {
	if pairtest.Race {
		t.Skip("some mutations race, and the detector would fail the test for it; it watches the cases elsewhere")
	}
	for _, x := range mutations {
		for i, name := range x.cases {
			if !*long && i > 0 {
				break
			}
			t.Run(x.name+"/"+name, func(t *testing.T) {
				at := slices.IndexFunc(Cases(), func(c Case) bool { return c.Name == name })
				found := checkProcesses(t, vansOfProcesses[0], job{Case: name, Mutation: x.name, Seed: 1}, Cases()[at].size)
				if found == "" {
					t.Errorf("the case passes peers with the mutation: %s", x.name)
				}
				t.Log(found)
			})
		}
	}
}

// checkProcesses runs a case with processes as members, and returns what it finds.
func checkProcesses(t *testing.T, v vanOfProcesses, j job, size int) string {
	dir, err := os.MkdirTemp(folder, "sv") // short, as the path of a socket must be
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	t.Setenv("TMPDIR", dir) // where scheduler and members meet
	s := ps.DefaultSettings()
	s.NumPeer, s.RootURI, s.RootPort = size, "127.0.0.1", 0
	s.StartTimeout, s.StopTimeout, s.HeartbeatTimeout, s.LogLevel = deadline, deadline, deadline, config.LogOff
	v.apply(&s)
	ctx, cancel := context.WithTimeout(context.Background(), deadline+slow)
	defer cancel()

	x := &processes{table: newMeeting(size), ctx: ctx, cancel: cancel}
	scheduler, err := startScheduler(ctx, s, func(port int) {
		s.RootPort = port
		for rank := range size {
			j.Rank, j.Shares = rank, v.shares
			mine := s
			mine.Role, mine.NodeRank = ps.RolePeer, rank
			x.start(t, j, mine, dir)
		}
	})
	if err != nil {
		x.fail("the scheduler does not start: " + err.Error())
	}
	x.wait.Wait()
	if scheduler != nil {
		if err := scheduler.Stop(ctx); err != nil {
			x.fail("the scheduler's stop: " + err.Error())
		}
		_ = scheduler.Close()
	}
	return x.found
}

// startScheduler starts the scheduler in this process. It calls listens when nodes can register.
func startScheduler(ctx context.Context, s ps.Settings, listens func(port int)) (*ps.Node, error) {
	s.Role = ps.RoleScheduler
	return ps.Start(ctx, s, ps.OnListen(listens))
}

// processes are the members of a case.
type processes struct {
	table  *meeting
	ctx    context.Context
	cancel func()
	wait   sync.WaitGroup

	mu    sync.Mutex
	found string
}

// fail ends the case. The first cause counts.
func (x *processes) fail(text string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.found == "" {
		x.found = text
	}
	x.table.breakUp()
	x.cancel()
}

// start starts the process of a member.
func (x *processes) start(t *testing.T, j job, s ps.Settings, dir string) {
	text, err := json.Marshal(j)
	require.NoError(t, err)
	cmd := exec.CommandContext(x.ctx, os.Args[0])
	cmd.Env = append(append(config.Clean(os.Environ()), s.Env()...), jobEnv+"="+string(text), "TMPDIR="+dir, "GORACE=atexit_sleep_ms=0")
	var said bytes.Buffer
	cmd.Stderr = io.MultiWriter(os.Stderr, &said)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	x.wait.Add(1)
	if err := cmd.Start(); err != nil {
		x.wait.Done()
		x.fail(err.Error())
		return
	}
	go func() {
		defer x.wait.Done()
		over := x.attend(j, newPipes(out, in))
		if err := cmd.Wait(); !over && !j.dies(err) {
			x.fail(fmt.Sprintf("peer %d: its process ended: %v %s", j.Rank, err, said.String()))
		}
	}()
}

// dies reports whether a member may end as it has: the last one of cases of deaths is killed.
func (j job) dies(end error) bool {
	var exit *exec.ExitError
	if !errors.As(end, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	at := slices.IndexFunc(Cases(), func(c Case) bool { return c.Name == j.Case })
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL && j.Rank == Cases()[at].size-1 && strings.HasPrefix(j.Case, "death")
}

// attend serves a member until its case is over, and reports whether it has said so.
func (x *processes) attend(j job, p pipes) (over bool) {
	defer x.table.leave(j.Rank)
	for {
		var r report
		if p.in.Decode(&r) != nil {
			return false
		}
		if r.Over {
			if r.Text != "" {
				x.fail(r.Text)
			}
			return true
		}
		values, whole := x.table.tryExchange(j.Rank, r.Value)
		if !whole || p.out.Encode(reply{values}) != nil {
			return true // the case has failed elsewhere
		}
	}
}

// tryExchange is exchange, and reports whether no other member has failed.
func (x *meeting) tryExchange(i int, mine []byte) (values [][]byte, whole bool) {
	defer func() {
		if v := recover(); v != nil {
			if _, ok := v.(violation); !ok {
				panic(v)
			}
		}
	}()
	return x.exchange(i, mine), true
}
