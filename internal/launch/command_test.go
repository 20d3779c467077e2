package launch

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
)

func TestResolveExplains(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	require.NoError(t, os.WriteFile("script", []byte("#!/bin/sh\n"), 0o600))
	require.NoError(t, os.WriteFile("runs", []byte("#!/bin/sh\n"), 0o700))
	require.NoError(t, os.Mkdir("folder", 0o700))
	for _, c := range []struct {
		command []string
		want    string
		code    int
	}{
		{nil, "is empty", 127},
		{[]string{"no-such-program-anywhere"}, "is not in PATH: correct it", 127},
		{[]string{"./nothing"}, "does not exist", 127},
		{[]string{"./script"}, "is not executable: chmod +x ./script", 126},
		{[]string{"./folder"}, "is a folder", 126},
		{[]string{"runs"}, "write ./runs", 127},
		{[]string{"echo hello"}, "as words of their own", 127},
	} {
		_, err := resolve(stepvan.RoleWorker, c.command, "")
		var e *CommandError
		require.ErrorAs(t, err, &e, "%q", c.command)
		require.ErrorContains(t, err, c.want)
		require.Equal(t, c.code, ExitCode(err), "%q", c.command)
	}
}

func TestResolve(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "runs"), []byte("#!/bin/sh\n"), 0o700))
	path, err := resolve(stepvan.RoleWorker, []string{"./runs"}, dir)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, "runs"), path, "as the child sees it from its folder")
	path, err = resolve(stepvan.RoleWorker, []string{"sh", "-c", ":"}, dir)
	require.NoError(t, err)
	require.True(t, filepath.IsAbs(path))
}

func TestProgramThatRunsTheCommandLine(t *testing.T) {
	self := Program(append(make([]string, 0, 8), "python3", "-m", "stepvan"))
	command, err := self.Command("scheduler", "-x")
	require.NoError(t, err)
	again, err := self.Command("env")
	require.NoError(t, err)
	require.Equal(t, []string{"python3", "-m", "stepvan", "scheduler", "-x"}, command, "a later call changes nothing")
	require.Equal(t, []string{"python3", "-m", "stepvan", "env"}, again)
}

func TestThisProgram(t *testing.T) {
	command, err := Program(nil).Command("scheduler", "-x")
	require.NoError(t, err)
	require.FileExists(t, command[0])
	require.Equal(t, []string{"scheduler", "-x"}, command[1:])
}
