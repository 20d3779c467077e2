package bench

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/stepvan/stepvan/internal/launch"
)

// Nodes says which program the workers and servers of a measurement are. The scheduler is always
// one in Go.
type Nodes string

// Programs that exchange tensors.
const (
	GoNodes    Nodes = "go"    // over package ps
	NumpyNodes Nodes = "numpy" // in Python, with arrays of numpy
	TorchNodes Nodes = "torch" // in Python, with tensors of torch
	NixlNodes  Nodes = "nixl"  // agents of NIXL in Python, another library that exchanges the same bytes
	GlooNodes  Nodes = "gloo"  // torch.distributed in Python, as Megatron-core uses it to reshard
)

// AllNodes lists the programs over stepvan. Peers lists those over other libraries, for comparison.
var (
	AllNodes = []Nodes{GoNodes, NumpyNodes, TorchNodes}
	Peers    = []Nodes{NixlNodes, GlooNodes}
)

// Python reports whether the nodes are programs in Python.
func (n Nodes) Python() bool { return n == NumpyNodes || n == TorchNodes || n.peer() }

// peer reports whether the nodes are programs over another library. Those need no scheduler.
func (n Nodes) peer() bool { return slices.Contains(Peers, n) }

// run reports whether the nodes can run a workload.
func (n Nodes) run(w Workload) bool {
	switch t := workloads[w]; {
	case n == GlooNodes:
		return w == Refit
	case n.peer():
		return t.peers || w == Refit
	case n.Python():
		return t.python
	}
	return true
}

// flag is the flag that asks for these nodes.
func (n Nodes) flag() string {
	if n.peer() {
		return "--peer " + string(n)
	}
	return "--nodes " + string(n)
}

// nodeModule is the program of a node in Python. It is part of package stepvan, and runs the same
// commands.
const nodeModule = "stepvan._bench"

// nodeCommand is the command line of a worker or server.
func (o *Options) nodeCommand(args nodeArgs) []string {
	if !o.Nodes.Python() {
		return slices.Concat(o.Node, args.list())
	}
	return slices.Concat(o.Python, []string{"-m", nodeModule, "--tensors=" + string(o.Nodes)}, args.list())
}

// Why nodes in Python did not start: the interpreter misses a package.
var (
	errNoPackage = errors.New("has no package stepvan: " +
		"pip install ./python in a clone of the repository, or a wheel, and name the interpreter with --python (of `make installed-wheel`: .cache/venv/bin/python)")
	errNoTorch = errors.New("has no torch, which --nodes torch and --peer gloo need: pip install torch")
	errNoNixl  = errors.New("has no NIXL, which --peer nixl needs: pip install --no-deps nixl-cu12==1.5.1 nixl==1.5.1 numpy")
)

// explainMissing says what to install when nodes in Python did not start because a package is
// missing.
func (o *Options) explainMissing(err error) error {
	var failure *launch.Failure
	if !o.Nodes.Python() || !errors.As(err, &failure) {
		return err
	}
	for _, line := range failure.Stderr {
		_, missing, _ := strings.Cut(line, "No module named ")
		missing = strings.TrimLeft(missing, "'")
		for prefix, why := range map[string]error{"stepvan": errNoPackage, "nixl": errNoNixl, "torch": errNoTorch} {
			if strings.HasPrefix(missing, prefix) {
				return fmt.Errorf("%s %w", strings.Join(o.Python, " "), why)
			}
		}
	}
	return err
}
