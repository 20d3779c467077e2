package trace

import (
	"fmt"
	"io"
	"time"
	"unicode/utf8"
)

// Table prints p50 and p99 in us: a row for each label and, where there are several, a last one over all. Errors are
// those of w.
func (s *Summary) Table(w io.Writer) error {
	rows := s.Rows
	if len(rows) != 1 {
		rows = append(rows[:len(rows):len(rows)], s.All)
	}
	p := &printer{w: w, width: len(corner)}
	for i := range rows {
		p.width = max(p.width, utf8.RuneCountInString(rows[i].Label))
	}
	p.head()
	for i := range rows {
		p.row(&rows[i])
	}
	return p.err
}

const corner = "us"

// printer prints columns and keeps the first error.
type printer struct {
	w     io.Writer
	width int // of the first column
	err   error
}

func (p *printer) printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}

func (p *printer) head() {
	p.printf("%-*s %8s", p.width, "", "")
	for _, part := range []string{"total", "send", "network", "server", "back"} {
		p.printf(" |%19s", part)
	}
	p.printf("\n%-*s %8s", p.width, corner, "count")
	for range 5 {
		p.printf(" |%9s %9s", "p50", "p99")
	}
	p.printf("\n")
}

func (p *printer) row(r *Row) {
	p.printf("%-*s %8d", p.width, r.Label, r.Count)
	for _, q := range []Quantiles{r.Total, r.Send, r.Network, r.Server, r.Back} {
		p.printf(" |%9.1f %9.1f", us(q.P50), us(q.P99))
	}
	p.printf("\n")
}

func us(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
