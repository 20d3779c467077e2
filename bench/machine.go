package bench

import (
	"fmt"
	"os"
	"regexp"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// machine names the machine of the figures: processor, cores, kernel, Go.
var machine = sync.OnceValue(func() string {
	return fmt.Sprintf("%s, %d cores, Linux %s, %s %s", processor(), runtime.NumCPU(), kernel(), runtime.Version(), runtime.GOARCH)
})

var modelName = regexp.MustCompile(`(?m)^model name\s*: *(.*?)\s*$`)

// processor reads the name of the processor. Not every architecture has it.
func processor() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	if found := modelName.FindSubmatch(text); found != nil {
		return string(found[1])
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
