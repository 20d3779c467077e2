package launch

import (
	"slices"
	"strings"
)

// The limits of the last lines of a child.
const (
	tailLines = 10
	tailBytes = 400 // of a line
)

// tail keeps the last lines of a stream. Not for concurrent use.
type tail struct{ lines []string }

// add copies a line. It skips blank ones.
func (t *tail) add(line []byte) {
	text := strings.ToValidUTF8(string(line[:min(len(line), tailBytes)]), "\uFFFD")
	if strings.TrimSpace(text) == "" {
		return
	}
	if len(line) > tailBytes {
		text += " ..."
	}
	if len(t.lines) == tailLines {
		t.lines = slices.Delete(t.lines, 0, 1)
	}
	t.lines = append(t.lines, text)
}
