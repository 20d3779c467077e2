package launch

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// procFS is where the kernel tells about processes.
const procFS = "/proc"

// process is a line of the kernel's table of processes.
type process struct {
	pid, parent, group, session int
	zombie                      bool // it has ended, and its parent has not asked how
}

// adoptOrphans makes this process the parent of whatever its descendants leave behind.
func adoptOrphans() error {
	return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
}

// processes lists all that this process can see. Those that end meanwhile are left out.
func processes() []process {
	names, err := filepath.Glob(procFS + "/[0-9]*/stat")
	if err != nil {
		return nil
	}
	out := make([]process, 0, len(names))
	for _, name := range names {
		text, err := os.ReadFile(name) //nolint:gosec // the kernel's own names
		if err != nil {
			continue
		}
		if p, ok := parseStat(text); ok {
			out = append(out, p)
		}
	}
	return out
}

// parseStat reads /proc/PID/stat: the pid, the program's name in parentheses,
// which may hold any byte, then state, parent, group and session.
func parseStat(text []byte) (process, bool) {
	open, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if open < 1 || end < open {
		return process{}, false
	}
	rest := bytes.Fields(text[end+1:])
	if len(rest) < 4 {
		return process{}, false
	}
	var p process
	for _, field := range []struct {
		text []byte
		to   *int
	}{{bytes.TrimSpace(text[:open]), &p.pid}, {rest[1], &p.parent}, {rest[2], &p.group}, {rest[3], &p.session}} {
		n, err := strconv.Atoi(string(field.text))
		if err != nil {
			return process{}, false
		}
		*field.to = n
	}
	p.zombie = rest[0][0] == 'Z' || rest[0][0] == 'X'
	return p, true
}

// descendants finds the processes that belong to a run.
type descendants struct {
	self  int          // this process
	id    string       // of the run, in the value of its mark
	roots map[int]bool // pids, and so sessions, of the run's children
	known map[int]bool // pids of other processes that were found while they lived
}

// find returns those that belong to the run, the run's children among them.
func (d *descendants) find(all []process) []process {
	byParent := map[int][]process{}
	for _, p := range all {
		byParent[p.parent] = append(byParent[p.parent], p)
	}
	var out []process
	var walk func(parent int, inside bool)
	walk = func(parent int, inside bool) {
		for _, p := range byParent[parent] {
			in := inside || d.recognise(p)
			if in {
				out = append(out, p)
				d.known[p.pid] = !d.roots[p.pid]
			}
			walk(p.pid, in)
		}
	}
	walk(d.self, false)
	d.forget(all)
	return out
}

// recognise reports whether a process whose parent is not of the run is of it. The
// environment of one that has ended cannot be read: there known helps.
func (d *descendants) recognise(p process) bool {
	if d.roots[p.pid] || d.roots[p.session] || d.known[p.pid] || d.known[p.session] {
		return true
	}
	env, err := os.ReadFile(filepath.Join(procFS, strconv.Itoa(p.pid), "environ"))
	return err == nil && slices.ContainsFunc(bytes.Split(env, []byte{0}), d.marks)
}

// marks reports whether an entry of an environment is the mark of the run. A run within a run has the ids of both.
func (d *descendants) marks(entry []byte) bool {
	ids, ok := strings.CutPrefix(string(entry), markName+"=")
	return ok && d.id != "" && slices.Contains(strings.Split(ids, ","), d.id)
}

// forget drops pids that are gone, as they can be given to another process.
func (d *descendants) forget(all []process) {
	alive := make(map[int]bool, len(all))
	for _, p := range all {
		alive[p.pid] = true
	}
	for pid := range d.known {
		if !alive[pid] {
			delete(d.known, pid)
		}
	}
}

// childless tells, faster than a look at all processes, that this one has no child,
// and so, as it adopts orphans, no descendant. It reaps nothing.
func childless() bool {
	return unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil) == unix.ECHILD
}

// survivors returns the living processes of the run that are not its children,
// and reaps the adopted ones that have ended.
func (d *descendants) survivors() []process {
	if childless() {
		return nil
	}
	var out []process
	for _, p := range d.find(processes()) {
		switch {
		case d.roots[p.pid]: // waited for with os/exec
		case !p.zombie:
			out = append(out, p)
		case p.parent == d.self:
			_, _ = unix.Wait4(p.pid, nil, unix.WNOHANG, nil)
		}
	}
	return out
}
