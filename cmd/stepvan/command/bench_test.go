package command

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/bench"
)

func TestBenchSideBySide(t *testing.T) {
	code, out, errOut := run(t, "bench", "--workload", "echo,afd", "--van", "tcp,mem", "--push", "8,64", "--count", "4", "--rounds", "2")
	require.Zero(t, code, errOut)
	require.Equal(t, 8, strings.Count(out, "1w1s"))
	require.Regexp(t, `(?m)^ *echo +tcp +1w1s 8B/8B `, out)
	require.Regexp(t, `(?m)^ *afd +mem +1w1s 64B/128B `, out)
	require.Contains(t, errOut, "1 of 8: tcp echo 1w1s 8B/8B, mem echo 1w1s 8B/8B\n3 of 8: ")
}

func TestBenchJSONPageAndCompare(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "page.html")
	code, out, errOut := run(t, "bench", "--workload", "echo", "--van", "mem", "--count", "12", "--rounds", "6", "--json", "--html", path)
	require.Zero(t, code, errOut)
	require.Equal(t, 1, strings.Count(out, "\n"))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Contains(t, string(text), "1w1s 8B/8B")
	require.Equal(t, []string{path}, mustGlob(t, folder), "nothing else is left there")

	report, reports := out, filepath.Join(folder, "a.json")
	require.NoError(t, os.WriteFile(reports, []byte(report), 0o600))
	code, out, errOut = run(t, "bench", "compare", reports, reports)
	require.Zero(t, code, errOut)
	require.Regexp(t, `mem echo 1w1s 8B/8B .* 0\.00% ~ \(needs 4 runs\)`, out)

	require.NoError(t, os.WriteFile(reports, []byte(strings.Repeat(report, 4)), 0o600))
	code, out, errOut = run(t, "bench", "compare", reports, reports)
	require.Zero(t, code, errOut)
	require.Regexp(t, `mem echo 1w1s 8B/8B .* ~ \(p=1\.000 n=4\)`, out)
}

// A page that cannot be written is refused before the first measurement: the output is empty.
func TestAPathForNoPageIsToldFirst(t *testing.T) {
	folder := t.TempDir()
	for name, path := range map[string]string{"no folder": filepath.Join(folder, "none", "x.html"), "a folder": folder} {
		t.Run(name, func(t *testing.T) {
			code, out, errOut := run(t, "bench", "--workload", "echo", "--van", "mem", "--count", "1", "--rounds", "1", "--json", "--html", path)
			require.Equal(t, 1, code)
			require.Empty(t, out)
			require.Contains(t, errOut, "--html")
			require.Contains(t, errOut, path)
		})
	}
	require.Empty(t, mustGlob(t, folder))
}

// A run without results leaves the last page, and no temporary file.
func TestAFailedRunLeavesTheLastPage(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "page.html")
	require.NoError(t, os.WriteFile(path, []byte("last"), 0o600))
	ended, end := context.WithCancel(t.Context())
	end()
	var out, errOut bytes.Buffer
	require.NotZero(t, Execute(ended, []string{"bench", "--workload", "echo", "--van", "mem", "--html", path}, &out, &errOut))
	require.NotContains(t, errOut.String(), "wrote")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "last", string(text))
	require.Equal(t, []string{path}, mustGlob(t, folder))
}

func mustGlob(t *testing.T, folder string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(folder, "*"))
	require.NoError(t, err)
	return found
}

func TestMistakesInBench(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.json")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"unknown workload":   {[]string{"--workload", "ecco"}, 1, `--workload "ecco" is unknown: write goals, echo, afd, afd3, incast,`},
		"unknown van":        {[]string{"--workload", "echo", "--van", "tcp,pigeon"}, 1, `--van "pigeon" is unknown: write tcp, unix, shm, rdma, mem`},
		"no workload":        {[]string{"--workload", ""}, 1, "--workload is empty: write goals, echo,"},
		"half a list":        {[]string{"--workload", "echo,"}, 1, `--workload "" is unknown: write goals, echo,`},
		"no such folder":     {[]string{"--workload", "echo", "--html", "/nowhere/x.html"}, 1, "--html: /nowhere/x.html: no such file or directory: name a file in a folder that exists"},
		"no rounds":          {[]string{"--workload", "echo", "--rounds", "0"}, 1, "--rounds must be above 0: leave it out for the default"},
		"goals with a van":   {[]string{"--van", "mem"}, 1, "--van does not go with the goals"},
		"goals and others":   {[]string{"--workload", "goals,echo"}, 1, "goals are measured alone"},
		"nodes in process":   {[]string{"--workload", "echo", "--van", "mem", "--nodes", "numpy"}, 1, "one process does not work with --nodes numpy"},
		"no interpreter":     {[]string{"--workload", "echo", "--nodes", "torch", "--python", "/nowhere"}, 127, "command \"/nowhere\" does not exist"},
		"unknown nodes":      {[]string{"--workload", "echo", "--nodes", "rust"}, 1, `--nodes "rust" is unknown: write go, numpy, torch`},
		"unknown goals":      {[]string{"--nodes", "rust"}, 1, `--nodes "rust" is unknown: write go, numpy, torch`},
		"a peer as nodes":    {[]string{"--workload", "echo", "--nodes", "nixl"}, 1, `--nodes "nixl" is unknown`},
		"unknown peer":       {[]string{"--workload", "echo", "--peer", "pigeon"}, 1, `--peer "pigeon" is unknown: write nixl`},
		"weights of a peer":  {[]string{"--workload", "weights", "--peer", "nixl"}, 1, "--workload weights does not work with --peer nixl: use echo, afd or refit"},
		"no size":            {[]string{"--workload", "echo", "--push", "many"}, codeUsage, `size "many" is not a whole number of bytes`},
		"size 0":             {[]string{"--workload", "echo", "--push", "0"}, codeUsage, `size "0" is too small: write at least 1 byte`},
		"refit of echo":      {[]string{"--workload", "echo", "--pair"}, 1, "need --workload refit (got echo)"},
		"no moves":           {[]string{"--workload", "refit", "--moves", "0"}, 1, "--moves must be above 0"},
		"unknown layout":     {[]string{"--workload", "refit", "--to", "pp2"}, codeUsage, `layout "pp2" is unknown: write one like tp4, tp2ep2 or tp2dp2`},
		"unknown memory":     {[]string{"--workload", "refit", "--memory", "x"}, 1, `--memory "x" is unknown: write shared, sources, destinations, one or torch`},
		"torchstore":         {[]string{"--workload", "refit", "--peer", "torchstore"}, 1, "--peer torchstore cannot run between these processes: torchstore 0.1.2 needs torchmonarch 0.1.2"},
		"echo of gloo":       {[]string{"--workload", "echo", "--peer", "gloo"}, 1, "--workload echo does not work with --peer gloo: use refit"},
		"goals with a model": {[]string{"--bytes", "1MiB"}, 1, "--bytes does not go with the goals"},
		"lists unlike":       {[]string{"--workload", "afd", "--push", "1,2,3", "--pull", "1,2"}, 1, "--pull has 2 sizes and --push 3"},
		"no workers":         {[]string{"--workload", "echo", "--workers", "0"}, 1, "--workers must be above 0"},
		"no exchanges":       {[]string{"--workload", "echo", "--count", "0"}, 1, "--count must be above 0"},
		"none in flight":     {[]string{"--workload", "echo", "--inflight", "0"}, 1, "--inflight must be above 0"},
		"negative compute":   {[]string{"--workload", "afd3", "--compute", "-1s"}, 1, "--compute must be above 0"},
		"no time to compute": {[]string{"--workload", "echo", "--think", "long"}, codeUsage, `time "long" of "long" is unknown: write 100us, 100us-1ms or 90%100us+10%5ms`},
		"computing twice":    {[]string{"--workload", "afd3", "--think", "1ms"}, 1, "--think needs --workload echo, pairs or afd (got afd3)"},
		"computing for many": {[]string{"--workload", "echo", "--think", "1ms", "--inflight", "2"}, 1, "--think needs one worker, one server and one exchange in flight (got 1, 1, 2)"},
		"asleep how long":    {[]string{"--workload", "echo", "--sleep"}, 1, "--sleep needs --think, which says how long: add it"},
		"a quota in process": {[]string{"--workload", "echo", "--van", "mem", "--quota", "1"}, 1, "--quota and --busy are for processes"},
		"a negative quota":   {[]string{"--workload", "echo", "--quota", "-1"}, 1, "--quota is out of range (got -1, want 0 to 4096)"},
		"a quota for goals":  {[]string{"--quota", "1"}, 1, "--quota does not go with the goals"},
		"fresh for many":     {[]string{"--workload", "incast", "--fresh"}, 1, "--fresh needs --workload echo, pairs or afd (got incast)"},
		"fresh half word":    {[]string{"--workload", "echo", "--fresh", "--push", "12"}, 1, "--fresh with --push 12B and --pull 12B: "},
		"goals, fresh":       {[]string{"--fresh"}, 1, "--fresh does not go with the goals"},
		"no room for a time": {[]string{"--workload", "echo", "--think", "1ms", "--push", "4"}, 1, "--think with --push 4B and --pull 4B: a push of 4 bytes has no room for the time that the server computes: push 8 bytes at least"},
		"computing and bulk": {[]string{"--workload", "echo", "--think", "1ms", "--bulk", "1MiB"}, 1, "--bulk does not go with --think"},
		"goals, computing":   {[]string{"--think", "1ms"}, 1, "--think does not go with the goals"},
		"core below 1":       {[]string{"--workload", "echo", "--pin", "-1"}, 1, "--pin must be above 0"},
		"no time":            {[]string{"--workload", "echo", "--duration", "0s"}, 1, "--duration must be above 0"},
		"two lengths":        {[]string{"--duration", "1s", "--count", "1"}, codeUsage, "none of the others can be"},
		"sweep of one size":  {[]string{"--sweep", "--push", "1"}, codeUsage, "none of the others can be"},
		"compare nothing":    {[]string{"compare", "one"}, codeUsage, "accepts 2 arg(s), received 1"},
		"compare no file":    {[]string{"compare", "/nowhere", "/nowhere"}, 1, "/nowhere: no such file"},
		"compare empty file": {[]string{"compare", empty, empty}, 1, "empty.json: it has no report"},
	} {
		t.Run(name, func(t *testing.T) {
			code, _, errOut := run(t, append([]string{"bench"}, c.args...)...)
			require.Equal(t, c.code, code, errOut)
			require.Contains(t, errOut, c.want)
		})
	}
}

func TestHelpOfCompare(t *testing.T) {
	code, out, _ := run(t, "bench", "compare", "--help")
	require.Zero(t, code)
	golden := filepath.Join("testdata", "help", "bench-compare.txt")
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(out), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), out, "if this is meant: go test ./cmd/stepvan -run TestHelp -update")
}

// python -m stepvan uses its own interpreter.
func TestTheInterpreter(t *testing.T) {
	for _, c := range []struct {
		python string
		self   []string
		want   string
	}{
		{"", []string{"/bin/stepvan", "bench-node"}, "python3"},
		{"", []string{"/venv/python", "-m", "stepvan", "bench-node"}, "/venv/python"},
		{"pypy", []string{"/venv/python", "-m", "stepvan", "bench-node"}, "pypy"},
	} {
		require.Equal(t, []string{c.want}, (&benchFlags{python: c.python}).interpreter(c.self))
	}
}

func TestGoalsOfNodes(t *testing.T) {
	require.Len(t, (&benchFlags{nodes: []string{"go"}}).goals(), len(bench.Goals()))
	both := (&benchFlags{nodes: []string{"go", "torch"}}).goals()
	require.Len(t, both, len(bench.Goals())+len(bench.PythonGoals(bench.TorchNodes)))
	require.Equal(t, bench.TorchNodes, both[len(both)-1].Options.Nodes)
	compared := (&benchFlags{nodes: []string{"numpy"}, peers: []string{"nixl"}}).goals()
	require.Len(t, compared, len(bench.PythonGoals(bench.NumpyNodes))+len(bench.PeerGoals(bench.NumpyNodes, bench.NixlNodes)))
	require.Equal(t, bench.NixlNodes, compared[len(compared)-1].Others[0].Nodes)
}

// The page has curves by size and by the time of computing, and nothing is measured twice.
func TestPlanOfAPage(t *testing.T) {
	f := &benchFlags{nodes: []string{"go"}, html: "x"}
	base := bench.Options{Node: []string{"x"}, Duration: time.Second}
	plan, err := f.goalsPlan(f.goals(), base)
	require.NoError(t, err)
	require.NoError(t, plan.Check())
	seen := map[string]int{}
	for _, o := range slices.Concat(plan...) {
		seen[o.String()]++
	}
	for name, times := range seen {
		require.Equal(t, 1, times, name)
	}
	for _, name := range []string{"tcp echo 1w1s 64B/64B", "shm echo 1w1s 8B/8B think 10us", "tcp echo 1w1s 8B/8B think 10ms", "shm echo 1w1s 8B/8B think 300us"} {
		require.Contains(t, seen, name)
	}
}
