package doctor

import (
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// text reads a file of the machine, without surrounding space; "" when it cannot.
func (d *doctor) text(name string) string {
	b, err := fs.ReadFile(d.sys.Root, name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// number reads a file that begins with a number.
func (d *doctor) number(name string) (int64, bool) { return firstNumber(d.text(name)) }

func firstNumber(text string) (int64, bool) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return 0, false
	}
	n, err := strconv.ParseInt(words[0], 10, 64)
	return n, err == nil
}

// lineNumber finds the number behind a key at the start of a line, as in /proc/meminfo.
func (d *doctor) lineNumber(name, key string) (int64, bool) {
	for line := range strings.Lines(d.text(name)) {
		if rest, ok := strings.CutPrefix(line, key); ok {
			return firstNumber(rest)
		}
	}
	return 0, false
}

// groupDirs lists the directories of this process's control groups that hold the
// limits of a controller, from the innermost out: version 2, then version 1. In a
// container the path of the host may be listed; then only the outermost exists.
func (d *doctor) groupDirs(controller string) []string {
	const mount = "sys/fs/cgroup"
	var dirs []string
	for line := range strings.Lines(d.text("proc/self/cgroup")) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		base := ""
		switch {
		case parts[1] == "":
			base = mount
		case hasWord(parts[1], controller):
			base = path.Join(mount, controller)
		default:
			continue
		}
		for at := path.Clean("/" + parts[2]); ; at = path.Dir(at) {
			dirs = append(dirs, path.Join(base, at))
			if at == "/" {
				break
			}
		}
	}
	return dirs
}

func hasWord(list, word string) bool {
	for w := range strings.SplitSeq(list, ",") {
		if w == word {
			return true
		}
	}
	return false
}
