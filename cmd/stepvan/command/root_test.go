package command

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden help texts")

// TestHelp holds the help texts of the root and of every sub-command.
func TestHelp(t *testing.T) {
	root := newRoot(nil)
	for _, c := range append([]*cobra.Command{root}, root.Commands()...) {
		if c.Hidden { // for processes that stepvan starts
			continue
		}
		t.Run(c.Name(), func(t *testing.T) {
			args := []string{"--help"}
			if c != root {
				args = []string{c.Name(), "--help"}
			}
			code, out, errOut := run(t, args...)
			require.Zero(t, code)
			require.Empty(t, errOut)
			golden := filepath.Join("testdata", "help", c.Name()+".txt")
			if *update {
				require.NoError(t, os.MkdirAll(filepath.Dir(golden), 0o755))
				require.NoError(t, os.WriteFile(golden, []byte(out), 0o644))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			require.Equal(t, string(want), out, "if this is meant: go test ./cmd/stepvan -run TestHelp -update")
		})
	}
}

// Not those of the process, which has others where this is part of a library.
func TestWithoutArgumentsItHelps(t *testing.T) {
	defer func(args []string) { os.Args = args }(os.Args)
	os.Args = []string{"python3", "-m", "stepvan"}
	code, out, errOut := run(t)
	require.Zero(t, code)
	require.Empty(t, errOut)
	require.Contains(t, out, "Usage:")
}

func TestCommandsAreInGroupsAndExplained(t *testing.T) {
	for _, c := range newRoot(nil).Commands() {
		require.True(t, c.Hidden || c.GroupID != "", c.Name())
		require.NotEmpty(t, c.Short, c.Name())
		require.NotNil(t, c.RunE, c.Name())
	}
}

func TestMistakesOnTheCommandLine(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"lanch"}, "Did you mean this?\n\tlaunch"},
		{[]string{"version", "extra"}, "unknown command \"extra\""},
		{[]string{"launch"}, "write it after --"},
		{[]string{"launch", "-n", "2x", "--", "true"}, "write it like 2w2s"},
		{[]string{"launch", "--nope"}, "See 'stepvan launch --help'"},
		{[]string{"env", "--json", "--markdown"}, "none of the others can be"},
		{[]string{"help", "nonsense"}, "unknown command \"nonsense\""},
		{[]string{"help", "lanch"}, "Did you mean this?\n\tlaunch"},
		{[]string{"help", "version", "nonsense"}, "unknown help topic \"version nonsense\""},
	} {
		code, out, errOut := run(t, c.args...)
		require.Equal(t, codeUsage, code, "%q", c.args)
		require.Empty(t, out)
		require.Contains(t, errOut, c.want)
	}
}

func TestCompletion(t *testing.T) {
	for _, sh := range []string{"bash", "zsh", "fish"} {
		code, out, _ := run(t, "completion", sh)
		require.Zero(t, code)
		require.Contains(t, out, "stepvan")
	}
	_, out, _ := run(t, "__complete", "la")
	require.Contains(t, out, "launch\tRun a scheduler")
}

func TestVersion(t *testing.T) {
	code, out, _ := run(t, "version")
	require.Zero(t, code)
	require.Contains(t, out, "wire     ")
}

func TestEndOfTheContextIsAnError(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out bytes.Buffer
	require.Equal(t, 1, Execute(ctx, []string{"launch", "--", "true"}, &out, &out))
	require.Equal(t, "stepvan launch: stopped: context canceled\n", out.String())
}

func TestErrorsCutLongArguments(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	for _, args := range [][]string{{long}, {"help", long}, {"version", long}, {"launch", "-n", long, "--", "true"}, {"launch", "--van=" + long, "--", "true"}, {"bench", "--nodes", long}, {"bench", "--push=" + long}} {
		code, _, errOut := run(t, args...)
		require.NotZero(t, code)
		require.NotEmpty(t, errOut)
		require.Less(t, len(errOut), 2000, "%.100q", args)
	}
}
