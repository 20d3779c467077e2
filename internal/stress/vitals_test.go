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
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/tensor"
)

// vitals are what a process holds, of everything that may leak.
type vitals struct {
	Heap       int64 // bytes of Go's heap in use
	Resident   int64 // bytes of memory: all of the following, and what the heap keeps free
	Own        int64 // of these, anonymous and not in Go's heap: tables of the runtime, and what is mapped past it
	Shared     int64 // of these, in memory files except rings
	FDs        int
	Anonymous  int // mappings without a file: the runtime's, the race detector's, those of threads
	Backed     int // mappings of files
	Files      int // of these, memory files
	Goroutines int
	Threads    int
}

func (v vitals) String() string {
	return fmt.Sprintf("heap %d KiB, resident %d KiB (%d beside the heap, %d in memory files), %d descriptors, %d anonymous mappings, %d of files (%d of memory files), %d goroutines, %d threads",
		v.Heap>>10, v.Resident>>10, v.Own>>10, v.Shared>>10, v.FDs, v.Anonymous, v.Backed, v.Files, v.Goroutines, v.Threads)
}

// examine takes the vitals of this process, with everything collected that is
// garbage, and returned that is free.
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
	v.Threads, v.Resident = int(field(status, "Threads:")), (field(status, "RssAnon:")+field(status, "RssShmem:"))<<10
	if err := v.mapped(); err != nil {
		return v, err
	}
	fds, err := descriptors()
	v.FDs = len(fds)
	return v, err
}

// heapReach is how far from one of its objects Go's heap lies, in a process that needs little of it.
const heapReach = 1 << 30

// anyObject is on Go's heap.
var anyObject = new([64]byte)

// ring is in the names of the memory files whose pages are touched one after the other for the
// first time as messages go round. Their size is fixed.
const ring = ":ring "

// mapped looks at the mappings.
func (v *vitals) mapped() error {
	text, err := os.ReadFile("/proc/self/smaps")
	heap, inHeap, inFile := int64(uintptr(unsafe.Pointer(anyObject))), false, false
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		from, _, ok := strings.Cut(f[0], "-")
		switch {
		case ok && len(f) > 4:
			at, _ := strconv.ParseInt(from, 16, 64) // the kernel's own line
			file := strings.Contains(line, "/memfd:")
			anonymous := f[4] == "0" // the inode; kernels may give such mappings a name
			inHeap = anonymous && max(at-heap, heap-at) < heapReach
			inFile = file && !strings.Contains(line, ring)
			if anonymous {
				v.Anonymous++
			} else {
				v.Backed++
			}
			if file {
				v.Files++
			}
		case f[0] == "Anonymous:" && !inHeap:
			v.Own += field([]byte(line), "Anonymous:") << 10
		case f[0] == "Rss:" && inFile:
			v.Shared += field([]byte(line), "Rss:") << 10
		}
	}
	return err
}

// steady takes the vitals of the test's own process.
func steady(t testing.TB) func() vitals {
	return func() vitals {
		t.Helper()
		_, _ = examine() // the first time makes what the collector keeps
		v, err := examine()
		require.NoError(t, err)
		return v
	}
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
// What the repeated things hold has no slack: descriptors, goroutines, memory files, and all that maps one. Of
// the files that stay some pages may be touched for the first time: a push that comes before its
// registration is known lands in pooled memory.
//
// What the Go runtime holds is not exact, but bounded:
//
//   - Which pooled objects survive a collection differs by some 10 KiB.
//   - Tables of the collector and of stacks grow by some 100 KiB in the first minutes.
//   - The runtime starts a thread whenever all others happen to be in system calls. It maps stacks for that thread, and
//     keeps the thread for ever.
//   - The heap does not return every page that is free. Such pages make up most of the slack of Resident.
var slack = vitals{Heap: 64 << 10, Resident: 8<<20 + shadow, Own: 1<<20 + shadow, Shared: 256 << 10, Anonymous: 8 + shadowMaps, Threads: 3}

// grown lists what has grown beyond the slack.
func (v vitals) grown(before vitals) (out []string) {
	for _, c := range []struct {
		what               string
		before, now, allow int64
	}{
		{"bytes of heap", before.Heap, v.Heap, slack.Heap},
		{"resident bytes", before.Resident, v.Resident, slack.Resident},
		{"bytes beside the heap", before.Own, v.Own, slack.Own},
		{"bytes in memory files", before.Shared, v.Shared, slack.Shared},
		{"descriptors", int64(before.FDs), int64(v.FDs), 0},
		{"anonymous mappings", int64(before.Anonymous), int64(v.Anonymous), int64(slack.Anonymous)},
		{"mappings of files", int64(before.Backed), int64(v.Backed), 0},
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

// settleTime is what may take what is on its way out: goroutines, descriptors, a peer's mappings.
const settleTime = 5 * time.Second

// requireFlat fails the test when something has grown and does not shrink again.
func requireFlat(t testing.TB, who string, before vitals, take func() vitals) {
	t.Helper()
	t.Logf("%s before: %v", who, before)
	after := take()
	for end := time.Now().Add(settleTime); len(after.grown(before)) > 0 && time.Now().Before(end); after = take() {
	}
	t.Logf("%s after:  %v", who, after)
	require.Empty(t, after.grown(before), "%s leaks", who)
}

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

// leaks lists what was not in the stock, after it has had time to go.
func (s stock) leaks() []string {
	var out []string
	for end := time.Now().Add(settleTime); ; time.Sleep(time.Millisecond) { // no event shows the end of a goroutine
		if out = s.look(); len(out) == 0 || time.Now().After(end) {
			return out
		}
	}
}

// staysOpen reports whether a descriptor is one that librdmacm keeps for the life of the process. It opens each device
// once, with a queue of its events. kept notes those that were seen.
func staysOpen(what string, kept map[string]bool) bool {
	const device, events = "/dev/infiniband/uverbs", "anon_inode:[infinibandevent]"
	switch {
	case !withRDMA():
		return false
	case what == events: // one for each device of the machine
		what = fmt.Sprint(events, len(kept))
	case !strings.HasPrefix(what, device):
		return false
	}
	first := !kept[what] && len(kept) < 2*devicesOfRDMA()
	kept[what] = true
	return first
}

// devicesOfRDMA is how many the machine has.
func devicesOfRDMA() int {
	devices, _ := os.ReadDir("/sys/class/infiniband") // none, if there is an error
	return len(devices)
}

func (s stock) look() (out []string) {
	fds, err := descriptors()
	if err != nil {
		return []string{err.Error()}
	}
	kept := map[string]bool{}
	for n, what := range fds {
		if s.fds[n] != what && !staysOpen(what, kept) {
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
	hoard := bytes.Repeat([]byte{1}, 10<<20+shadow)
	after, err := examine()
	require.NoError(t, err)
	found := strings.Join(append(after.grown(before), was.look()...), "\n")
	for _, w := range []string{"bytes of heap", "resident bytes", "descriptors", "goroutines became", "descriptor ", f.Name(), "goroutines run"} {
		require.Contains(t, found, w)
	}
	require.NotContains(t, found, "memory files")
	if shadow == 0 {
		require.NotContains(t, found, "beside the heap")
	}
	runtime.KeepAlive(hoard)
	close(end)
	require.NoError(t, f.Close())
	require.Empty(t, was.leaks())
}

func TestLeakedMemoryFilesAreFound(t *testing.T) {
	before := steady(t)()
	was, err := takeStock()
	require.NoError(t, err)
	a, err := tensor.NewAllocator(tensor.Options{HugePages: tensor.HugePagesOff})
	require.NoError(t, err)
	x, err := a.Zeros(tensor.Uint8, 16<<20+shadow)
	require.NoError(t, err)
	found := strings.Join(append(steady(t)().grown(before), was.look()...), "\n")
	for _, w := range []string{"resident bytes", "bytes in memory files", "descriptors", "mappings of files", "mapped memory files", "memory files are mapped", "/memfd:"} {
		require.Contains(t, found, w)
	}
	require.NoError(t, x.Region().Close())
	require.NoError(t, a.Close())
	require.Empty(t, was.leaks())
	requireFlat(t, "the process", before, steady(t))
}

// Mappings without a file count as well. More of them than the slack allows are a leak.
func TestLeakedMappingsAreFound(t *testing.T) {
	before := steady(t)()
	var kept [][]byte
	more := func(n int) {
		for range n {
			b, err := unix.Mmap(-1, 0, 2*os.Getpagesize(), unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANON)
			require.NoError(t, err)
			require.NoError(t, unix.Mprotect(b[:os.Getpagesize()], unix.PROT_NONE)) // or the kernel would join neighbours
			kept = append(kept, b)
		}
	}
	more(slack.Anonymous + 1)
	require.Contains(t, strings.Join(steady(t)().grown(before), "\n"), "anonymous mappings")
	for _, b := range kept {
		require.NoError(t, unix.Munmap(b))
	}
	requireFlat(t, "the process", before, steady(t))
}
