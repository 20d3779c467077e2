package ps_test

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/ps"
)

// When the scheduler dies, servers end because of it. The errors of workers are about the scheduler all the same.
func TestTheFirstCauseIsBlamed(t *testing.T) {
	for _, van := range []vanKind{overTCP, overShm} {
		for _, server := range []string{"serve", "quit"} {
			t.Run(van.name+"/"+server, func(t *testing.T) {
				const rounds = 4
				for range rounds {
					f := raise(t, van, shape{workers: 2, servers: 1}, server, "blame", 0)
					require.NoError(t, f.scheduler.cmd.Process.Kill())
					f.blamed(t, "scheduler")
				}
			})
		}
	}
}

// The same when the scheduler stands still, which a server may notice before the workers do: it says why it leaves.
func TestTheFirstCauseIsBlamedBeforeItIsKnown(t *testing.T) {
	const rounds = 3
	for range rounds {
		f := raise(t, overTCP, shape{workers: 2, servers: 1, edit: func(s *ps.Settings) {
			s.HeartbeatInterval, s.HeartbeatTimeout = 100*time.Millisecond, time.Second
		}}, "serve", "blame", 0)
		require.NoError(t, f.scheduler.cmd.Process.Signal(syscall.SIGSTOP))
		f.blamed(t, "scheduler")
	}
}

// blamed requires that the errors of all workers are about a node.
func (f *family) blamed(t *testing.T, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	for _, p := range f.workers {
		_, err := p.expect(ctx, "nothing")
		require.ErrorContains(t, err, `about "`+name+`"`)
	}
}
