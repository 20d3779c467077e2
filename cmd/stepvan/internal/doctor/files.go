package doctor

import (
	"io/fs"
	"strconv"
	"strings"

	"github.com/stepvan/stepvan/internal/affinity"
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

// machine reads the control groups and cores of the machine.
func (d *doctor) machine() affinity.Machine { return affinity.Machine{Root: d.sys.Root} }
