package ps_test

import (
	"testing"

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
	_, err := reach.SocketDir()
	require.ErrorContains(t, err, `"tmp/stepvan-`)
}
