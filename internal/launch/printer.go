package launch

import (
	"fmt"
	"io"
	"sync"
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
