package layering

import "strings"

// module is the path of the module whose packages have rows here.
const module = "github.com/stepvan/stepvan"

// row is the rule for a package and for the packages below its folder that have no row of their own. They may import
// packages of lower levels, each other, and those in beside.
type row struct {
	path   string // below the module
	level  int
	beside []string // what they may import though it is not lower
	never  []string // what they may not import though it is lower
	only   []string // when set: nobody else may import them, however high
	sees   []string // when set: they may import nothing else, however low
	tests  bool     // helps tests and is not shipped: tests alone may import it, and the rules do not bind it
}

// composers put nodes together: they alone read settings and choose vans.
var composers = []string{"ps", "internal/reach", "internal/launch", "cmd/stepvan", "bench"}

// transports are built of van/parts. Nobody else needs to know how they are made.
var transports = []string{"van/tcpvan", "van/shmvan", "van/memvan", "rdma"}

// public is what a user's program imports.
var public = []string{"", "ps", "peer", "replay", "tensor", "trace"}

// nobody imports programs.
var nobody = []string{"-"}

// rows is the architecture, from the ground up.
var rows = []row{
	{path: "internal/text", level: 0},
	{path: "internal/race", level: 0, tests: true},
	{path: "", level: 1}, // the errors, for programs too
	{path: "internal/errs", level: 2},
	{path: "internal/sys", level: 2},

	{path: "internal/bulk", level: 3, beside: []string{"internal/affinity"}},
	{path: "internal/strided", level: 3, beside: []string{"internal/bulk"}},
	{path: "internal/prefetch", level: 3},
	{path: "internal/reuse", level: 3},
	{path: "internal/slots", level: 3, beside: []string{"internal/prefetch"}},
	{path: "internal/sparing", level: 3},
	{path: "internal/version", level: 3},
	{path: "internal/shm", level: 3},
	{path: "internal/affinity", level: 3},
	{path: "internal/verbs", level: 3},
	{path: "rdma/device", level: 3},
	{path: "rdma/device/devicetest", level: 3, tests: true},
	{path: "trace", level: 3, beside: []string{"internal/prefetch"}},
	{path: "config", level: 3, beside: []string{"rdma/device"}, only: composers},

	{path: "tensor", level: 4},

	{path: "mx", level: 5},
	{path: "internal/cast", level: 5},
	{path: "layout", level: 5}, // pure functions: no I/O

	{path: "match", level: 6}, // pure functions: no I/O

	{path: "device", level: 5},
	{path: "device/cuda", level: 6},
	{path: "internal/devicetest", level: 6, tests: true},

	{path: "internal/wire", level: 5},
	{path: "van", level: 5, beside: []string{"internal/wire"}},

	{path: "van/parts", level: 5, beside: []string{"van", "internal/wire"}, only: transports},
	{path: "van/tcpvan", level: 6, only: composers},
	{path: "van/shmvan", level: 6, only: composers},
	{path: "van/memvan", level: 6, only: append(composers[:len(composers):len(composers)], "capi")}, // capi: devices for the tests of bindings
	{path: "rdma", level: 6, only: composers},
	{path: "internal/vantest", level: 6, tests: true},
	{path: "internal/registry", level: 6},
	{path: "internal/storages", level: 6},

	{path: "internal/link", level: 7},
	{path: "internal/link/files", level: 7, beside: []string{"internal/link"}},
	{path: "internal/staging", level: 7},

	{path: "postoffice", level: 8, never: []string{"van"}},

	{path: "worker", level: 9, never: []string{"van"}},
	{path: "server", level: 9, never: []string{"van"}},
	{path: "peer", level: 9, never: []string{"van"}},

	{path: "reshard", level: 10}, // beside the other services, which do not see each other
	{path: "bus", level: 10},
	{path: "replay", level: 10},
	{path: "particle", level: 10},

	{path: "internal/reach", level: 10, only: []string{"ps", "cmd/stepvan"}},
	{path: "ps", level: 11},
	{path: "internal/launch", level: 11, only: []string{"cmd/stepvan", "capi", "bench"}},

	{path: "examples", level: 12, sees: public}, // a user copies them
	{path: "examples/afd/model/modeltest", level: 12, tests: true},
	{path: "bench", level: 12},
	{path: "capi", level: 12, beside: []string{"cmd/stepvan"}, only: nobody},
	{path: "scripts/lines", level: 12, only: nobody},
	{path: "cmd/stepvan", level: 12, beside: []string{"examples", "bench"}, only: []string{"capi"}},

	{path: "peer/peertest", level: 12, tests: true},
	{path: "internal/layering", level: 12, tests: true},
	{path: "internal/pairtest", level: 12, tests: true},
	{path: "internal/stress", level: 12, tests: true},
	{path: "internal/style", level: 12, tests: true},
}

// path of a package below the module. ok is false outside the module.
func local(importPath string) (path string, ok bool) {
	if importPath == module {
		return "", true
	}
	return strings.CutPrefix(importPath, module+"/")
}

// rowOf finds the row with the longest path that holds the package.
func rowOf(path string) (found row, ok bool) {
	for _, r := range rows {
		if within(path, r.path) && (!ok || len(r.path) > len(found.path)) {
			found, ok = r, true
		}
	}
	return found, ok
}

func within(path, folder string) bool {
	return path == folder || strings.HasPrefix(path, folder+"/")
}
