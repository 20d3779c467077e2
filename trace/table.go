package trace

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// Table prints p50 and p99 in us, with one row for each label. Below several rows it prints one for all requests
// together. It returns the errors of w.
func (s *Summary) Table(w io.Writer) error {
	rows := s.Rows
	if len(rows) != 1 {
		rows = append(rows[:len(rows):len(rows)], s.All)
	}
	const corner = "us"
	width := len(corner) // of the first column
	for i := range rows {
		width = max(width, utf8.RuneCountInString(rows[i].Label))
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%-*s %8s", width, "", "")
	for _, part := range []string{"total", "send", "network", "server", "back"} {
		fmt.Fprintf(&b, " |%19s", part)
	}
	fmt.Fprintf(&b, "\n%-*s %8s%s\n", width, corner, "count", strings.Repeat(fmt.Sprintf(" |%9s %9s", "p50", "p99"), 5))
	for i := range rows {
		r := &rows[i]
		fmt.Fprintf(&b, "%-*s %8d", width, r.Label, r.Count)
		for _, q := range []Quantiles{r.Total, r.Send, r.Network, r.Server, r.Back} {
			fmt.Fprintf(&b, " |%9.1f %9.1f", us(q.P50), us(q.P99))
		}
		b.WriteByte('\n')
	}
	_, err := b.WriteTo(w)
	return err
}

func us(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
