package launch

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/stepvan/stepvan/internal/sys"
)

// procFS is the folder with the kernel's table of processes.
const procFS = "/proc"

// process is an entry of the kernel's table of processes.
type process struct {
	pid, parent, group, session int
	zombie                      bool // it has ended, and its parent has not waited for it
}

// processes lists all processes that this one can see. It leaves out those that end while it reads.
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
	self  int          // this process, or anyProcess
	id    string       // of the run, in the value of its mark
	roots map[int]bool // pids, and so sessions, of the run's children
	known map[int]bool // pids of other processes that were found while they lived
}

// anyProcess is descendants.self where the processes of a run are not below this process.
const anyProcess = 0

// find returns the processes of the run, with the run's children.
func (d *descendants) find(all []process) (found []process) {
	children, alive := map[int][]process{}, map[int]bool{}
	for _, p := range all {
		children[p.parent] = append(children[p.parent], p)
		alive[p.pid] = true
	}
	var walk func(p process, inside bool)
	walk = func(p process, inside bool) {
		inside = inside || d.belongs(p)
		if inside {
			found = append(found, p)
			d.known[p.pid] = !d.roots[p.pid]
		}
		for _, c := range children[p.pid] {
			walk(c, inside)
		}
	}
	for _, p := range all {
		if p.parent == d.self || d.self == anyProcess && !alive[p.parent] {
			walk(p, false)
		}
	}
	maps.DeleteFunc(d.known, func(pid int, _ bool) bool { return !alive[pid] }) // the kernel may give it to others
	return found
}

// belongs reports whether a process belongs to the run although its parent does not. The
// environment of an ended process cannot be read; known remembers such processes.
func (d *descendants) belongs(p process) bool {
	if d.roots[p.pid] || d.roots[p.session] || d.known[p.pid] || d.known[p.session] {
		return true
	}
	env, err := os.ReadFile(filepath.Join(procFS, strconv.Itoa(p.pid), "environ"))
	return err == nil && slices.ContainsFunc(bytes.Split(env, []byte{0}), d.hasMark)
}

// hasMark reports whether an entry of an environment is the mark of the run. The mark of a run
// within a run has the ids of both.
func (d *descendants) hasMark(entry []byte) bool {
	ids, ok := strings.CutPrefix(string(entry), markName+"=")
	return ok && d.id != "" && slices.Contains(strings.Split(ids, ","), d.id)
}

// survivors returns the living processes of the run that are not its children. It reaps the adopted
// ones that have ended.
func (d *descendants) survivors() []process {
	if sys.HasNoChild() { // nor, because it adopts orphans, a descendant; faster than a list of all processes
		return nil
	}
	var out []process
	for _, p := range d.find(processes()) {
		switch {
		case d.roots[p.pid]: // waited for with os/exec
		case !p.zombie:
			out = append(out, p)
		case p.parent == d.self:
			sys.Reap(p.pid)
		}
	}
	return out
}
