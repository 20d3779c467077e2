package bench

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// machine names the machine of the figures: processor, cores, kernel, Go.
var machine = sync.OnceValue(func() string {
	return fmt.Sprintf("%s, %d cores, Linux %s, %s %s", processor(), runtime.NumCPU(), kernel(), runtime.Version(), runtime.GOARCH)
})

// processor reads the name of the processor. Not every architecture has it.
func processor() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err == nil {
		for line := range bytes.Lines(text) {
			name, value, found := strings.Cut(string(line), ":")
			if found && strings.TrimSpace(name) == "model name" {
				return strings.TrimSpace(value)
			}
		}
	}
	return "unknown processor"
}

func kernel() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(u.Release[:])
}
