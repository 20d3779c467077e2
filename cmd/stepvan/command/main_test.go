package command

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/internal/launch"
	"github.com/stepvan/stepvan/ps"
)

// asNode as first argument makes this test binary a node that joins, meets the
// others and leaves. Any other first argument makes it stepvan, except a flag.
const asNode = "run-as-node"

func TestMain(m *testing.M) {
	switch {
	case len(os.Args) < 2 || strings.HasPrefix(os.Args[1], "-"):
		launch.Unignore()
		os.Exit(m.Run())
	case os.Args[1] == asNode:
		if err := node(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(Execute(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

func node(ctx context.Context) error {
	n, err := ps.StartFromEnv(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("%v here\n", n)
	return n.Stop(ctx)
}

// run runs a command line within this process.
func run(t *testing.T, args ...string) (code int, out, errOut string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = Execute(t.Context(), args, &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

// program is stepvan as a process.
type program struct {
	*exec.Cmd
	stdout io.Closer
	out    *bufio.Reader
	errOut bytes.Buffer
}

func start(t *testing.T, args ...string) *program {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // ends a program that a test waits for in vain
	t.Cleanup(cancel)
	p := &program{Cmd: exec.CommandContext(ctx, os.Args[0], args...)}
	out, err := p.StdoutPipe()
	require.NoError(t, err)
	p.stdout, p.out, p.Stderr = out, bufio.NewReader(out), &p.errOut
	require.NoError(t, p.Start())
	return p
}

// line reads a line of the program's output.
func (p *program) line(t *testing.T) string {
	t.Helper()
	line, err := p.out.ReadString('\n')
	require.NoError(t, err, "%s", &p.errOut)
	return line
}
