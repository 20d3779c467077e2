package bench

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/stepvan/stepvan/internal/affinity"
	"github.com/stepvan/stepvan/internal/errs"
)

// ErrNoQuota means that this process may not limit the processor time of others, as --quota does.
var ErrNoQuota = errors.New("no control group with a quota of processor time can be made")

// quotaNeeds says what to do about ErrNoQuota.
const quotaNeeds = "run it as root, with a writable /sys/fs/cgroup that has the cpu controller (docker: --privileged --cgroupns=host)"

// controlGroup limits the processor time of the processes of a cluster. A nil *controlGroup has no limit.
type controlGroup struct{ dir string }

// Files of a control group, of version 2 or of version 1.
const (
	maxFile    = "cpu.max"
	quotaFile  = "cpu.cfs_quota_us"
	periodFile = "cpu.cfs_period_us"
	procsFile  = "cgroup.procs"
	statFile   = "cpu.stat"
)

// quotaPeriod is the time after which the kernel grants the quota again. It is the kernel's default.
const quotaPeriod = 100 * time.Millisecond

// leastQuota is the least quota that the kernel takes, in cores.
const leastQuota = 0.01

// newControlGroup makes a group inside the innermost group of this process that allows it. 0 cores mean no limit.
func newControlGroup(cores float64) (*controlGroup, error) {
	if cores == 0 {
		return nil, nil
	}
	why := errors.New("the kernel shows none to this process")
	for _, parent := range (affinity.Machine{}).GroupDirs("cpu") {
		dir, err := os.MkdirTemp("/"+parent, "stepvan-bench-")
		if err != nil {
			why = err
			continue
		}
		g := &controlGroup{dir: dir}
		if err = g.limit(cores); err == nil {
			return g, nil
		}
		why = errors.Join(err, g.close())
	}
	return nil, fmt.Errorf("--quota: %w: %w: %s", ErrNoQuota, why, quotaNeeds)
}

// limit sets the quota.
func (g *controlGroup) limit(cores float64) error {
	period := quotaPeriod.Microseconds()
	quota := int64(cores * float64(period))
	if _, err := os.Stat(filepath.Join(g.dir, maxFile)); err == nil {
		return g.write(maxFile, fmt.Sprintf("%d %d", quota, period))
	}
	return errors.Join(g.write(periodFile, strconv.FormatInt(period, 10)), g.write(quotaFile, strconv.FormatInt(quota, 10)))
}

// write writes a file that the kernel has made with the group.
func (g *controlGroup) write(file, text string) error {
	f, err := os.OpenFile(filepath.Join(g.dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// close removes the group, which has no processes any more.
func (g *controlGroup) close() error {
	if g == nil {
		return nil
	}
	return os.Remove(g.dir)
}

// command is the command line that runs another command inside the group.
func (g *controlGroup) command(node, command []string) []string {
	if g == nil {
		return command
	}
	return slices.Concat(node, nodeArgs{Inside: g.dir, Command: command}.list())
}

// executeInside moves this process into a group, and then executes a command in its place. Go's runtime reads the
// quota when it starts, so it must start there.
func executeInside(dir string, command []string) error {
	g := controlGroup{dir: dir}
	if err := g.write(procsFile, strconv.Itoa(os.Getpid())); err != nil {
		return fmt.Errorf("enter the control group with the quota: %w", err)
	}
	program, err := exec.LookPath(command[0])
	if err == nil {
		err = syscall.Exec(program, command, os.Environ())
	}
	return fmt.Errorf("run %s with a quota: %w", command[0], err)
}

// throttling is how often and how long a control group has been without processor time since it was made.
type throttling struct {
	count int64         // periods whose quota was used up
	time  time.Duration // of all cores together
}

// throttled reads the counters of the kernel.
func (g *controlGroup) throttled() (t throttling, err error) {
	if g == nil {
		return t, nil
	}
	text, err := os.ReadFile(filepath.Join(g.dir, statFile))
	if err != nil {
		return t, err
	}
	return parseThrottling(string(text))
}

// parseThrottling reads cpu.stat, which has the time in us (version 2) or in ns (version 1).
func parseThrottling(text string) (t throttling, err error) {
	for line := range strings.Lines(text) {
		name, digits, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, wrong := strconv.ParseInt(digits, 10, 64)
		switch name {
		case "nr_throttled":
			t.count = n
		case "throttled_usec":
			t.time = time.Duration(n) * time.Microsecond
		case "throttled_time":
			t.time = time.Duration(n)
		default:
			continue
		}
		if wrong != nil {
			return t, errs.Invalid("%s of a control group has %q for %s, want a number", statFile, digits, name)
		}
	}
	return t, nil
}

// since returns what has happened after earlier.
func (t throttling) since(earlier throttling) throttling {
	return throttling{count: t.count - earlier.count, time: t.time - earlier.time}
}

// per is the throttling of a time, by that time.
func (t throttling) per(d time.Duration) Throttled {
	return Throttled{
		Count: rounded(float64(t.count)/d.Seconds(), digits),
		Time:  rounded(t.time.Seconds()/d.Seconds(), shareDigits),
	}
}
