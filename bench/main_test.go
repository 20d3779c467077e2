package bench

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/stepvan/stepvan/internal/launch"
)

// asNode as first argument makes this test binary a process of a run.
const asNode = "run-as-node"

// asPython makes it stand for an interpreter, whose program is a node like the others.
const asPython = "run-as-python"

func TestMain(m *testing.M) {
	if len(os.Args) > 3 && os.Args[1] == asPython {
		os.Args = slices.Concat(os.Args[:1], []string{asNode}, os.Args[5:]) // without -m, the module and --tensors
	}
	if len(os.Args) > 1 && os.Args[1] == asNode {
		if err := Node(context.Background(), os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// options of short runs with processes of this binary.
func options(t testing.TB, o Options) Options {
	t.Helper()
	node, err := launch.Program(nil).Command(asNode)
	if err != nil {
		t.Fatal(err)
	}
	o.Node, o.Console.Stderr = node, t.Output()
	o.Python, err = launch.Program(nil).Command(asPython)
	if err != nil {
		t.Fatal(err)
	}
	return o
}
