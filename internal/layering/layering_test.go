package layering

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheModuleKeepsTheRules(t *testing.T) {
	packages, err := list("../..")
	require.NoError(t, err)
	require.Greater(t, len(packages), 10, "go list found too little to say anything")
	for _, broken := range check(packages) {
		t.Error(broken)
	}
}

// Each rule must be seen to fail: these are the sources of one package, and what must be said of it.
func TestEachRuleBites(t *testing.T) {
	const clause = "package p\n"
	for name, c := range map[string]struct {
		path    string
		imports []string // of the module
		deps    []string
		code    string
		want    string // "" when the rules allow it
	}{
		"downward":                  {path: "internal/link", imports: []string{"van", "internal/wire", "tensor", "trace", "internal/errs"}},
		"within a row":              {path: "internal/link", imports: []string{"internal/link/progress"}},
		"beside":                    {path: "van", imports: []string{"internal/wire"}},
		"not the other way":         {path: "internal/wire", imports: []string{"van"}, want: "downward only"},
		"upward":                    {path: "tensor", imports: []string{"internal/link"}, want: "downward only"},
		"upward from a folder":      {path: "internal/link/progress", imports: []string{"worker"}, want: "downward only"},
		"worker sees server":        {path: "worker", imports: []string{"server"}, want: "downward only"},
		"server sees worker":        {path: "server", imports: []string{"worker"}, want: "downward only"},
		"worker sees van":           {path: "worker", imports: []string{"van"}, want: "must not see"},
		"server sees a van":         {path: "server", imports: []string{"van/tcpvan"}, want: "is for ps"},
		"postoffice sees van":       {path: "postoffice", imports: []string{"van"}, want: "must not see"},
		"link sees a van":           {path: "internal/link", imports: []string{"van/memvan"}, want: "is for ps"},
		"vans see each other":       {path: "van/tcpvan", imports: []string{"van/memvan"}, want: "is for ps"},
		"ps composes":               {path: "ps", imports: []string{"van/tcpvan", "van/memvan", "config", "worker", "server"}},
		"settings from below":       {path: "worker", imports: []string{"config"}, want: "is for ps"},
		"test support shipped":      {path: "ps", imports: []string{"internal/vantest"}, want: "for tests only"},
		"test support uses all":     {path: "internal/pairtest", imports: []string{"van/memvan", "worker"}, code: `func init() {}`},
		"program imported":          {path: "ps", imports: []string{"cmd/stepvan/internal/doctor"}, want: "is for capi only"},
		"program of a demo":         {path: "cmd/stepvan", imports: []string{"examples/afd", "bench", "ps"}},
		"example of a user":         {path: "examples/afd", imports: []string{"", "ps", "tensor", "trace", "examples/afd/model"}},
		"example below ps":          {path: "examples/afd", imports: []string{"worker"}, want: "may import only stepvan, ps, peer, replay, tensor, trace"},
		"example sees internals":    {path: "examples/afd", imports: []string{"internal/errs"}, want: "may import only stepvan, ps, peer, replay, tensor, trace"},
		"example reads settings":    {path: "examples/hello", imports: []string{"config"}, want: "is for ps"},
		"server reaches worker":     {path: "server", deps: []string{"worker"}, want: "beside each other"},
		"worker reaches server":     {path: "worker", deps: []string{"server"}, want: "beside each other"},
		"settings reached":          {path: "internal/link/handles", deps: []string{"config"}, want: "takes Options"},
		"a van reached":             {path: "worker", deps: []string{"van/tcpvan"}, want: "hands vans in"},
		"no row":                    {path: "util", want: "has no row"},
		"no row in internal":        {path: "internal/common", want: "has no row"},
		"cgo":                       {path: "van", code: `import "C"`, want: "uses C"},
		"cgo where it belongs":      {path: "internal/verbs", code: `import "C"`},
		"cgo for other languages":   {path: "capi", imports: []string{"ps", "capi/internal/numbers", "cmd/stepvan/command"}, code: `import "C"`},
		"other languages imported":  {path: "bench", imports: []string{"capi"}, want: "is for -"},
		"mmap":                      {path: "tensor", code: `import "golang.org/x/sys/unix"; var _ = unix.Mmap`, want: "unix.Mmap"},
		"mmap under another name":   {path: "tensor", code: `import u "golang.org/x/sys/unix"; var _ = u.Mmap`, want: "unix.Mmap"},
		"mmap of syscall":           {path: "tensor", code: `import "syscall"; var _ = syscall.Mmap`, want: "syscall.Mmap"},
		"mmap where it belongs":     {path: "internal/shm", code: `import "golang.org/x/sys/unix"; var _ = unix.Mmap`},
		"raw system call":           {path: "internal/affinity", code: `import "golang.org/x/sys/unix"; var _ = unix.RawSyscall6`, want: "unix.RawSyscall6"},
		"raw call of syscall":       {path: "cmd/stepvan", code: `import "syscall"; var _ = syscall.Syscall`, want: "syscall.Syscall"},
		"control of the process":    {path: "internal/launch", code: `import "golang.org/x/sys/unix"; var _ = unix.Prctl`, want: "unix.Prctl"},
		"raw call where it belongs": {path: "internal/sys", code: `import "golang.org/x/sys/unix"; var _ = unix.RawSyscall`},
		"environment":               {path: "ps", code: `import "os"; func f() string { return os.Getenv("X") }`, want: "os.Getenv"},
		"environment as a value":    {path: "cmd/stepvan", code: `import "os"; var look = os.LookupEnv`, want: "os.LookupEnv"},
		"environment where allowed": {path: "config", code: `import "os"; var look = os.LookupEnv`},
		"a Getenv of one's own":     {path: "ps", code: `type o struct{}; func (o) Getenv(){}; var os o; func f() { os.Getenv() }`},
		"init":                      {path: "van/tcpvan", code: `func init() {}`, want: "init function"},
		"a method called init":      {path: "van/tcpvan", code: `type v struct{}; func (v) init() {}`},
	} {
		t.Run(name, func(t *testing.T) {
			p := pkg{ImportPath: module + "/" + c.path, Name: "p"}
			p.sources = append(p.sources, parsed(t, "doc.go", clause), parsed(t, "code.go", clause+c.code), parsed(t, "imports.go", clause+imports(c.imports)))
			for _, d := range c.deps {
				p.Deps = append(p.Deps, module+"/"+d)
			}
			got := check([]pkg{p})
			if c.want == "" {
				require.Empty(t, got)
				return
			}
			require.Len(t, got, 1)
			require.Contains(t, got[0], c.want)
			require.Contains(t, got[0], c.path)
		})
	}
}

func parsed(t *testing.T, name, text string) source {
	t.Helper()
	s, err := parse(name, text)
	require.NoError(t, err)
	return s
}

func imports(paths []string) (text string) {
	for _, p := range paths {
		text += "import _ \"" + strings.TrimSuffix(module+"/"+p, "/") + "\"\n"
	}
	return text
}

func TestEveryPackageHasDoc(t *testing.T) {
	for _, c := range []struct {
		name, kind string
		files      []string
		broken     bool
	}{
		{"with", "p", []string{"a.go", "doc.go"}, false},
		{"without", "p", []string{"a.go"}, true},
		{"program of one file", "main", []string{"main.go"}, false},
		{"program of two", "main", []string{"main.go", "run.go"}, true},
		{"tests only", "p", nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := pkg{ImportPath: module + "/bench", Name: c.kind}
			for _, f := range c.files {
				p.sources = append(p.sources, source{name: f})
			}
			require.Equal(t, c.broken, len(check([]pkg{p})) == 1)
		})
	}
}

// A module that breaks the rules on disk: go list and the reading of sources are part of the proof.
func TestABrokenModuleIsReported(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":                  "module " + module + "\n\ngo 1.26\n",
		"server/doc.go":           "package server\n",
		"worker/doc.go":           "package worker\n",
		"worker/send.go":          "package worker\nimport (\n\"os\"\n_ \"" + module + "/server\"\n)\nvar _ = os.Getenv\n",
		"worker/worker_test.go":   "package worker\nfunc init() {}\n",
		"internal/link/link.go":   "package link\n",
		"tensor/doc.go":           "package tensor\n",
		"tensor/other_windows.go": "package tensor\nfunc init() {}\n",
		"van/doc.go":              "package van\n",
		"van/tagged.go":           "//go:build never\n\npackage van\nimport _ \"" + module + "/tensor\"\nimport \"C\"\n",
		"helpers/doc.go":          "package helpers\n",
	} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	packages, err := list(dir)
	require.NoError(t, err)
	got := check(packages)
	want := []string{
		`"helpers" has no row`,
		"internal/link has no doc.go",
		"tensor/other_windows.go has an init function",
		"van/tagged.go uses C",
		"worker depends on server",
		"worker/send.go imports server",
		"worker/send.go uses os.Getenv",
	}
	require.Len(t, got, len(want), "%q", got)
	for i, w := range want {
		require.True(t, strings.HasPrefix(got[i], w), "%q does not begin with %q", got[i], w)
	}
}

func TestAModuleThatCannotBeListedIsAnError(t *testing.T) {
	_, err := list(t.TempDir())
	require.ErrorContains(t, err, "go list")
	_, err = decode([]byte("{"))
	require.Error(t, err)
	_, err = parse("x.go", "no go at all")
	require.Error(t, err)
}

// A typing mistake in a table must not switch a rule off.
func TestTheTablesNameRows(t *testing.T) {
	var paths []string
	for _, r := range rows {
		require.NotContains(t, paths, r.path, "named twice")
		paths = append(paths, r.path)
	}
	named := slices.Clone(composers)
	for _, r := range rows {
		named = slices.Concat(named, r.beside, r.never, r.sees)
	}
	for _, o := range owners {
		named = append(named, o.may...)
	}
	for _, u := range unreachables {
		named = slices.Concat(named, u.from, u.to)
	}
	for _, n := range named {
		require.Contains(t, paths, n)
	}
}
