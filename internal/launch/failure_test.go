package launch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan"
)

func TestExitCode(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errors.New("any"), 1},
		{&Failure{Status: 3}, 3},
		{fmt.Errorf("wrapped: %w", &Failure{Status: -1, Signal: unix.SIGSEGV}), 139},
		{&Interrupted{Signal: unix.SIGINT}, 130},
		{&Interrupted{Signal: unix.SIGTERM}, 143},
		{&CommandError{Err: &exec.Error{Err: exec.ErrNotFound}}, 127},
		{&CommandError{Err: fs.ErrNotExist}, 127},
		{&CommandError{Err: fs.ErrPermission}, 126},
		{&Stopped{Err: fmt.Errorf("late: %w", context.DeadlineExceeded)}, 124},
		{&Stopped{Err: context.Canceled}, 1},
		{fmt.Errorf("write: %w", unix.EPIPE), 141},
	} {
		require.Equal(t, c.want, ExitCode(c.err), "%v", c.err)
	}
}

func TestErrorsNameWho(t *testing.T) {
	worker := Child{Role: stepvan.RoleWorker, Rank: 3}
	for want, err := range map[string]error{
		"worker 3 failed: exit status 7":                                &Failure{Child: worker, Status: 7},
		"worker 3 failed: exit status 7; its last lines:\n    a\n    b": &Failure{Child: worker, Status: 7, Stderr: []string{"a", "b"}},
		"worker 3 failed: killed by SIGSEGV, core dumped":               &Failure{Child: worker, Signal: unix.SIGSEGV, Core: true},
		"worker 3 failed: killed by SIGTERM":                            &Failure{Child: worker, Signal: unix.SIGTERM},
		"stopped by SIGINT":                                             &Interrupted{Signal: unix.SIGINT},
		"stopped: why; still running: worker 3, scheduler":              &Stopped{Err: errors.New("why"), Running: []Child{worker, {Role: stepvan.RoleScheduler}}},
		"stopped: why": &Stopped{Err: errors.New("why")},
		"the server's command \"x\" is not there": &CommandError{Role: stepvan.RoleServer, Program: "x", Reason: "is not there"},
	} {
		require.EqualError(t, err, want)
	}
	require.ErrorContains(t, &Failure{Child: worker, Signal: unix.SIGKILL}, "memory was short")
}
