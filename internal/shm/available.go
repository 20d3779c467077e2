package shm

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// checkAvailable refuses to allocate what is not there: the kernel would kill
// a process for it instead of answering. It is a guard against gross mistakes,
// and passes where the limits are unknown.
func checkAvailable(root fs.FS, size int64) error {
	have, limit, ok := available(root)
	if !ok || size <= have {
		return nil
	}
	return fmt.Errorf("%w (%s leaves %d bytes)", unix.ENOMEM, limit, have)
}

// available returns the bytes that system and control group leave, and which of
// the two leaves less.
func available(root fs.FS) (n int64, limit string, ok bool) {
	n, ok = systemAvailable(root)
	limit = "the system"
	if group, has := groupAvailable(root); has && (!ok || group < n) {
		n, limit, ok = group, "the memory limit of the container or control group", true
	}
	return n, limit, ok
}

// systemAvailable reads what the kernel estimates to be available without swapping,
// and the free swap, where shared memory may go.
func systemAvailable(root fs.FS) (int64, bool) {
	text, err := fs.ReadFile(root, "proc/meminfo")
	if err != nil {
		return 0, false
	}
	free, ok := field(text, "MemAvailable:")
	swap, _ := field(text, "SwapFree:")
	return (free + swap) << 10, ok
}

// groupAvailable reads the limit of this process's control group (version 2).
// The file cache that the group could drop counts as free.
func groupAvailable(root fs.FS) (int64, bool) {
	self, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return 0, false
	}
	dir := ""
	for line := range strings.Lines(string(self)) {
		if at, found := strings.CutPrefix(strings.TrimSpace(line), "0::"); found {
			dir = path.Join("sys/fs/cgroup", at)
		}
	}
	limit, ok := number(root, dir, "memory.max")
	used, ok2 := number(root, dir, "memory.current")
	if !ok || !ok2 {
		return 0, false
	}
	stat, _ := fs.ReadFile(root, path.Join(dir, "memory.stat"))
	cache, _ := field(stat, "inactive_file")
	return limit - used + cache, true
}

// number reads a file that holds one number; "max" is not a number.
func number(root fs.FS, dir, name string) (int64, bool) {
	text, err := fs.ReadFile(root, path.Join(dir, name))
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
	return n, err == nil
}

// field finds the number behind a name at the start of a line.
func field(text []byte, name string) (int64, bool) {
	for line := range bytes.Lines(text) {
		f := bytes.Fields(line)
		if len(f) >= 2 && string(f[0]) == name {
			n, err := strconv.ParseInt(string(f[1]), 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// systemRoot is where the kernel's files are.
func systemRoot() fs.FS { return os.DirFS("/") }
