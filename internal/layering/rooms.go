package layering

import "strings"

// module is the path of the module whose packages have rooms.
const module = "github.com/stepvan/stepvan"

// room is a package and those below its folder, except rooms of their own.
// A room may import rooms of lower levels, itself, and those named in beside.
type room struct {
	path   string // below the module
	level  int
	beside []string // rooms that may be imported though they are not lower
	never  []string // rooms that may not be imported though they are lower
	only   []string // when set: nobody else may import this room, however high
	tests  bool     // helps tests and is not shipped: tests alone may import it, and the rules do not bind it
}

// composers put nodes together: they alone read settings and choose vans.
var composers = []string{"ps", "internal/launch", "cmd/stepvan", "bench", "examples"}

// nobody imports programs.
var nobody = []string{"-"}

// rooms is the architecture, from the ground up.
var rooms = []room{
	{path: "internal/errs", level: 0},
	{path: "internal/bulk", level: 0},
	{path: "internal/prefetch", level: 0},
	{path: "internal/reuse", level: 0},
	{path: "internal/sparing", level: 0},
	{path: "internal/shm", level: 0, beside: []string{"internal/errs"}},
	{path: "internal/affinity", level: 0, beside: []string{"internal/errs"}},
	{path: "internal/version", level: 0},
	{path: "internal/verbs", level: 0, beside: []string{"internal/errs"}},
	{path: "trace", level: 0, beside: []string{"internal/errs", "internal/prefetch"}},
	{path: "config", level: 0, beside: []string{"internal/errs"}, only: composers},

	{path: "tensor", level: 1},

	{path: "wire", level: 2},
	{path: "van", level: 2, beside: []string{"wire"}},

	{path: "van/tcpvan", level: 3, only: composers},
	{path: "van/shmvan", level: 3, only: composers},
	{path: "van/memvan", level: 3, only: composers},
	{path: "van/vantest", level: 3, tests: true},

	{path: "link", level: 4},

	{path: "postoffice", level: 5, never: []string{"van"}},

	{path: "worker", level: 6, never: []string{"van"}},
	{path: "server", level: 6, never: []string{"van"}},

	{path: "ps", level: 7},
	{path: "internal/launch", level: 7, only: []string{"cmd/stepvan", "capi", "bench", "examples"}},

	{path: "examples", level: 8},
	{path: "examples/afd/model/modeltest", level: 8, tests: true},
	{path: "bench", level: 8},
	{path: "capi", level: 8, beside: []string{"cmd/stepvan"}, only: nobody},
	{path: "cmd/stepvan", level: 8, beside: []string{"examples", "bench"}, only: []string{"capi"}},

	{path: "internal/layering", level: 8, tests: true},
	{path: "internal/pairtest", level: 8, tests: true},
	{path: "internal/stress", level: 8, tests: true},
}

// path of a package below the module. ok is false outside the module.
func local(importPath string) (path string, ok bool) {
	if importPath == module {
		return "", true
	}
	return strings.CutPrefix(importPath, module+"/")
}

// roomOf finds the room with the longest path that holds the package.
func roomOf(path string) (found room, ok bool) {
	for _, r := range rooms {
		if within(path, r.path) && (!ok || len(r.path) > len(found.path)) {
			found, ok = r, true
		}
	}
	return found, ok
}

func within(path, folder string) bool {
	return path == folder || strings.HasPrefix(path, folder+"/")
}
