package ps_test

import (
	"context"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/internal/reach"
	"github.com/stepvan/stepvan/ps"
)

// A relative TMPDIR leads processes to different directories. It is named, not what was made of it.
func TestRelativeTMPDIR(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("TMPDIR", "tmp")
	for name, edit := range map[string]func(*ps.Settings){
		"shm":   func(s *ps.Settings) { s.Van = config.VanShm },
		"local": func(s *ps.Settings) { s.Local = true },
	} {
		s := alone(t, ps.RoleServer)
		edit(&s)
		_, err := ps.Start(limited(t), s)
		require.ErrorContains(t, err, "set TMPDIR to an absolute path", name)
		require.NotContains(t, err.Error(), "machine.user", name)
	}
	log := &journal{}
	s := alone(t, ps.RoleServer)
	s.StartTimeout = 100 * time.Millisecond // nobody is there
	_, err := ps.Start(limited(t), s, ps.WithLogger(zerolog.New(log)))
	require.ErrorIs(t, err, context.DeadlineExceeded, "it goes on without shared memory")
	require.Contains(t, log.String(), "memory is not shared with nodes of this machine: ")
	require.Contains(t, log.String(), "set TMPDIR to an absolute path")
	_, err = reach.SocketDir()
	require.ErrorContains(t, err, `"tmp/stepvan-`)
}
