package stress

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/internal/launch"
	"github.com/stepvan/stepvan/ps"
)

// launch runs a cluster of restless nodes as `stepvan launch` does, until a signal ends it.
func (c *childProgram) launch(ctx context.Context) error {
	text, err := json.Marshal(job{Program: "node", Work: c.job.Work, Restless: true})
	if err != nil {
		return err
	}
	signals, release := launch.Signals()
	defer release()
	self := []string{os.Args[0]}
	err = launch.Run(ctx, launch.Plan{
		Workers: 2, Servers: 2, Worker: self, Server: self, Scheduler: self,
		Env: []string{jobEnv + "=" + string(text)}, Stdout: os.Stdout, Stderr: os.Stderr, Signals: signals,
		Started: func(ch launch.Child) { c.report(event{Kind: evLaunched, Text: ch.String(), Count: ch.PID}) },
	})
	var interrupted *launch.Interrupted
	if !errors.As(err, &interrupted) {
		return fmt.Errorf("not interrupted, but: %w", err)
	}
	c.report(event{Kind: evEnded, Text: err.Error()})
	return nil
}

// nodes of a launched cluster.
const launched = 5

// Ctrl-C, or the end of the launcher itself, may come at any moment of a launched cluster. No
// process is left behind, and no file after the next start.
func TestInterruptedLaunchStress(t *testing.T) {
	each(t, vansOfMachines(), func(t *testing.T, van vanKind) {
		dir := private(t)
		random := rand.New(rand.NewPCG(5, 6))
		for i := range starts() {
			s := base(van, 2, 2)
			s.Role, s.RootPort = ps.RoleScheduler, 1 // launch says otherwise
			l := spawn(t, s, job{Program: "launch", Work: work{Loads: []load{small}}}, "TMPDIR="+dir)
			var pids []int
			for range launched {
				pids = append(pids, l.await(evLaunched, nil).Count)
			}
			if i%2 == 0 { // in the middle of exchanges, else of the start
				for range launched {
					l.await(evStarted, nil)
				}
			}
			time.Sleep(time.Duration(random.Int64N(int64(50 * time.Millisecond))))
			if i%3 == 2 {
				l.kill()
				_ = l.cmd.Wait()
			} else {
				l.signal(syscall.SIGINT)
				require.Contains(t, l.next(bound, "the end of launch", func(e event) bool {
					return e.Kind == evEnded && e.PID == l.cmd.Process.Pid
				}).Text, "SIGINT")
				l.gone()
			}
			for _, pid := range pids {
				requireGone(t, pid, i%3 == 2)
			}
		}
		requireNoLeftovers(t, van, dir)
	})
}

// requireGone fails the test when a process lives; one whose parent was killed may take a moment.
func requireGone(t *testing.T, pid int, soon bool) {
	t.Helper()
	for end := time.Now().Add(settleTime); runs(pid); time.Sleep(time.Millisecond) { // only the parent learns of the end
		require.True(t, soon && time.Now().Before(end), "process %d is left", pid)
	}
}

// runs reports whether a process does. One that has ended and was not reaped does not.
func runs(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && state(text) != 'Z'
}

// state is the letter for the state of a process in its line of the kernel's table.
func state(stat []byte) byte {
	at := bytes.LastIndexByte(stat, ')') + 2
	if at >= len(stat) {
		return 0
	}
	return stat[at]
}
