package terminal

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// pty opens a terminal.
func pty(t *testing.T) *os.File {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("this machine has no terminals to test with: %v", err)
	}
	t.Cleanup(func() { _ = master.Close() })
	require.NoError(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tty.Close() })
	return tty
}

func TestColor(t *testing.T) {
	for _, name := range []string{"NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "CI", "COLORTERM"} {
		t.Setenv(name, "")
	}
	t.Setenv("TERM", "xterm-256color")
	require.False(t, Color(&bytes.Buffer{}), "no terminal")
	tty := pty(t)
	require.True(t, Color(tty))
	t.Setenv("TERM", "dumb")
	require.False(t, Color(tty))
	t.Setenv("TERM", "xterm-256color")
	t.Setenv("NO_COLOR", "1")
	require.False(t, Color(tty))
}
