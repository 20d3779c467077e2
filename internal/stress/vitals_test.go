package stress

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// vitals are what a process holds, of everything that may leak.
type vitals struct {
	Heap       int64 // bytes of Go's heap in use
	Anon       int64 // resident bytes of its own: heap, stacks, the runtime
	Shared     int64 // resident bytes of memory files
	FDs        int
	Maps       int // lines of /proc/self/maps
	Files      int // of these, memory files
	Goroutines int
	Threads    int
}

func (v vitals) String() string {
	return fmt.Sprintf("heap %d KiB, anonymous %d KiB, shared %d KiB, %d descriptors, %d mappings (%d of memory files), %d goroutines, %d threads",
		v.Heap>>10, v.Anon>>10, v.Shared>>10, v.FDs, v.Maps, v.Files, v.Goroutines, v.Threads)
}

// examine takes the vitals of this process, with everything collected that is
// garbage and returned that is free.
func examine() (v vitals, err error) {
	runtime.GC() // finalisers of the first round make garbage of the second
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	v.Heap, v.Goroutines = int64(m.HeapAlloc), runtime.NumGoroutine()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return v, err
	}
	v.Anon, v.Shared, v.Threads = field(status, "RssAnon:")<<10, field(status, "RssShmem:")<<10, int(field(status, "Threads:"))
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return v, err
	}
	v.Maps, v.Files = bytes.Count(maps, []byte("\n")), bytes.Count(maps, []byte("/memfd:"))
	fds, err := descriptors()
	v.FDs = len(fds)
	return v, err
}

// steady takes the vitals of the test's own process.
func steady(t testing.TB) vitals {
	t.Helper()
	_, _ = examine() // the first time makes what the collector keeps
	v, err := examine()
	require.NoError(t, err)
	return v
}

// field reads a line of /proc/self/status.
func field(status []byte, name string) int64 {
	_, rest, _ := bytes.Cut(status, []byte(name))
	f := bytes.Fields(rest)
	if len(f) == 0 {
		return 0
	}
	n, _ := strconv.ParseInt(string(f[0]), 10, 64)
	return n
}

// descriptors says what each open descriptor is.
func descriptors() (map[int]string, error) {
	names, err := filepath.Glob("/proc/self/fd/*")
	out := map[int]string{}
	for _, name := range names {
		if to, err := os.Readlink(name); err == nil { // the one that listed them is closed
			n, _ := strconv.Atoi(filepath.Base(name))
			out[n] = to
		}
	}
	return out, err
}

// slack is how much more of each a process may have after any number of repetitions.
//
// What the repeated things hold has none: descriptors, goroutines, memory files and
// their resident bytes (which are whole files, or pages of arenas that the warm-up
// has touched). What is the Go runtime's own is not exact, but bounded: which spans,
// stacks and pools survive a collection differs by some 100 KiB; it maps a
// few ranges more as the collector's own tables grow; and it starts a thread, and
// keeps it for ever, whenever all others happen to be in system calls.
var slack = vitals{Heap: 256 << 10, Anon: 2 << 20, Maps: 4, Threads: 3}

// grown lists what has grown beyond the slack.
func (v vitals) grown(before vitals) (out []string) {
	for _, c := range []struct {
		what               string
		before, now, allow int64
	}{
		{"bytes of heap", before.Heap, v.Heap, slack.Heap},
		{"anonymous resident bytes", before.Anon, v.Anon, slack.Anon},
		{"shared resident bytes", before.Shared, v.Shared, slack.Shared},
		{"descriptors", int64(before.FDs), int64(v.FDs), 0},
		{"mappings", int64(before.Maps), int64(v.Maps), int64(slack.Maps)},
		{"mapped memory files", int64(before.Files), int64(v.Files), 0},
		{"goroutines", int64(before.Goroutines), int64(v.Goroutines), 0},
		{"threads", int64(before.Threads), int64(v.Threads), int64(slack.Threads)},
	} {
		if c.now > c.before+c.allow {
			out = append(out, fmt.Sprintf("%d %s became %d", c.before, c.what, c.now))
		}
	}
	return out
}

// requireFlat fails the test when something has grown.
func requireFlat(t testing.TB, who string, before, after vitals) {
	t.Helper()
	t.Logf("%s before: %v", who, before)
	t.Logf("%s after:  %v", who, after)
	require.Empty(t, after.grown(before), "%s leaks", who)
}

// settleTime is what goroutines and descriptors that are on their way out may take.
const settleTime = 5 * time.Second

// stock is what a process had before a node started in it.
type stock struct {
	fds        map[int]string
	goroutines int
	files      int
}

// takeStock wakes the runtime's network poller first, whose descriptors stay for ever.
func takeStock() (stock, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return stock{}, err
	}
	_, _ = r.Close(), w.Close()
	fds, err := descriptors()
	return stock{fds, runtime.NumGoroutine(), memoryFiles()}, err
}

func memoryFiles() int {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return -1
	}
	return bytes.Count(maps, []byte("/memfd:"))
}

// leaks says what is there that was not, once everything has had time to go.
func (s stock) leaks() []string {
	var out []string
	for end := time.Now().Add(settleTime); ; time.Sleep(time.Millisecond) { // nothing tells when a goroutine is gone
		if out = s.look(); len(out) == 0 || time.Now().After(end) {
			return out
		}
	}
}

func (s stock) look() (out []string) {
	fds, err := descriptors()
	if err != nil {
		return []string{err.Error()}
	}
	for n, what := range fds {
		if s.fds[n] != what {
			out = append(out, fmt.Sprintf("descriptor %d is open: %s", n, what))
		}
	}
	if n := memoryFiles(); n > s.files {
		out = append(out, fmt.Sprintf("%d memory files are mapped, %d were", n, s.files))
	}
	if n := runtime.NumGoroutine(); n > s.goroutines {
		buf := make([]byte, 1<<16)
		out = append(out, fmt.Sprintf("%d goroutines run, %d did:\n%s", n, s.goroutines, buf[:runtime.Stack(buf, true)]))
	}
	slices.Sort(out)
	return out
}

// Every sort of leak must be seen.
func TestLeaksAreFound(t *testing.T) {
	before, err := examine()
	require.NoError(t, err)
	was, err := takeStock()
	require.NoError(t, err)
	require.Empty(t, was.look())

	f, err := os.CreateTemp(t.TempDir(), "")
	require.NoError(t, err)
	end := make(chan struct{})
	go func() { <-end }()
	hoard := bytes.Repeat([]byte{1}, 8<<20)
	after, err := examine()
	require.NoError(t, err)
	found := strings.Join(append(after.grown(before), was.look()...), "\n")
	for _, w := range []string{"bytes of heap", "anonymous", "descriptors", "goroutines became", "descriptor ", f.Name(), "goroutines run"} {
		require.Contains(t, found, w)
	}
	require.NotContains(t, found, "memory files")
	runtime.KeepAlive(hoard)
	close(end)
	require.NoError(t, f.Close())
	require.Empty(t, was.leaks())
}

func TestLeakedFilesAreFound(t *testing.T) {
	before, after := vitals{Files: 3, Shared: 1 << 20, Maps: 90, Threads: 9}, vitals{Files: 4, Shared: 1<<20 + 4096, Maps: 95, Threads: 13}
	require.Len(t, after.grown(before), 4)
	require.Empty(t, before.grown(before))
	require.Empty(t, before.grown(after))
}
