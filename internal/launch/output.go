package launch

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

// colours of the prefixes, as terminals take them: each child has one of them.
var colours = []int{36, 33, 32, 35, 34, 96, 93, 92, 95, 94}

// launcher is the name before the lines of Run itself.
const launcher = "launch"

// printer writes the lines of all children to the two writers of the plan, one write at a time. Any
// goroutine may use it. After a failed write it prints nothing more, but still takes lines, so that
// no child waits for its pipe.
type printer struct {
	mu     sync.Mutex
	failed bool
	broken chan error // gets the first error of a write; has room for it
	prefix bool
	color  bool
	width  int // of the longest name
}

func newPrinter(plan *Plan, all []Child) *printer {
	p := &printer{broken: make(chan error, 1), prefix: plan.Prefix, color: plan.Color, width: len(launcher)}
	for _, c := range all {
		p.width = max(p.width, len(c.String()))
	}
	return p
}

// write prints whole lines.
func (p *printer) write(w io.Writer, lines []byte) {
	if len(lines) == 0 || w == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed {
		return
	}
	if _, err := w.Write(lines); err != nil {
		p.failed = true
		p.broken <- fmt.Errorf("write the children's output: %w", err)
	}
}

// stream makes the stream of one child; index picks its colour.
func (p *printer) stream(name string, index int, t *tail) *stream {
	if !p.prefix {
		return &stream{tail: t}
	}
	return &stream{prefix: p.label(name, index, '|'), more: p.label(name, index, '+'), tail: t}
}

func (p *printer) label(name string, index int, mark byte) string {
	if !p.color {
		return fmt.Sprintf("%-*s %c ", p.width, name, mark)
	}
	return fmt.Sprintf("\x1b[0;%dm%-*s %c\x1b[0m ", colours[index%len(colours)], p.width, name, mark)
}

// maxLine is the longest line in bytes that is printed at once. Longer lines are cut. So a child
// that ends no line is neither silent nor takes memory without limit.
const maxLine = 64 << 10

// stream cuts the output of a child into lines and gives each a prefix. A progress bar overwrites
// its line with carriage returns: of such a line, stream keeps what a terminal would show last. Not
// for concurrent use.
type stream struct {
	prefix  string // of a line
	more    string // of the rest of a line that was cut
	tail    *tail  // gets the lines too; may be nil
	pending []byte // of the line that is not complete
	cut     bool   // the beginning of the line was printed already
	out     []byte
}

// feed takes what was read and returns what to print: whole lines, valid until
// the next call. p is not kept.
func (s *stream) feed(p []byte) []byte {
	s.out = s.out[:0]
	for len(p) > 0 {
		n := min(len(p), maxLine-len(s.pending))
		if end := bytes.IndexByte(p[:n], '\n'); end >= 0 {
			s.pending = append(s.pending, p[:end]...)
			s.end()
			p = p[end+1:]
			continue
		}
		s.pending = append(s.pending, p[:n]...)
		p = p[n:]
		if len(s.pending) == maxLine {
			s.shorten()
		}
	}
	return s.out
}

// finish returns the line that was never ended, if there is one.
func (s *stream) finish() []byte {
	s.out = s.out[:0]
	if len(s.pending) > 0 {
		s.end()
	}
	return s.out
}

// end prints the pending line.
func (s *stream) end() {
	if line := visible(s.pending); len(line) > 0 || !s.cut {
		s.print(line)
	}
	s.pending, s.cut = s.pending[:0], false
}

// shorten makes room in a full pending line. It forgets what was overwritten, or
// prints the part that has come.
func (s *stream) shorten() {
	if i := bytes.LastIndexByte(s.pending[:maxLine-1], '\r'); i >= 0 {
		s.pending = append(s.pending[:0], s.pending[i+1:]...)
		return
	}
	n := wholeRunes(s.pending)
	s.print(s.pending[:n])
	s.cut = true
	s.pending = append(s.pending[:0], s.pending[n:]...)
}

func (s *stream) print(line []byte) {
	if s.tail != nil {
		s.tail.add(line)
	}
	if s.cut {
		s.out = append(s.out, s.more...)
	} else {
		s.out = append(s.out, s.prefix...)
	}
	s.out = append(s.out, line...)
	s.out = append(s.out, '\n')
}

// visible is what a terminal shows of a line at last.
func visible(line []byte) []byte {
	line = bytes.TrimRight(line, "\r")
	return line[bytes.LastIndexByte(line, '\r')+1:]
}

// wholeRunes is the length of p without a rune that was cut off at its end.
func wholeRunes(p []byte) int {
	for n := len(p) - 1; n >= 0 && len(p)-n <= utf8.UTFMax; n-- {
		if utf8.RuneStart(p[n]) {
			if utf8.FullRune(p[n:]) {
				break
			}
			return n
		}
	}
	return len(p)
}

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
