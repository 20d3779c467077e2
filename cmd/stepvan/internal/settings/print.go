package settings

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/stepvan/stepvan/config"
)

// The attributes of a terminal's text.
const (
	bold  = "\x1b[1m"
	faint = "\x1b[2m"
	plain = "\x1b[0m"
)

// Style says how Print writes.
type Style struct {
	Color bool // headings bold, defaults faint
	Long  bool // with other names, what is accepted, default and meaning
}

// Print writes the rows for people, under the headings of their groups: name,
// value, and where the value is from.
func Print(w io.Writer, rows []config.Row, style Style) error {
	name, value := 0, 0
	for _, r := range rows {
		name, value = max(name, len(r.Name)), max(value, len(shown(r)))
	}
	var b strings.Builder
	for i, r := range rows {
		if i == 0 || r.Group != rows[i-1].Group {
			heading(&b, r.Group, i == 0, style)
		}
		line := fmt.Sprintf("  %-*s  %-*s  %s", name, r.Name, value, shown(r), r.Source)
		b.WriteString(style.paint(faint, line, r.Source == fromDefault) + "\n")
		if style.Long {
			long(&b, r)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func heading(b *strings.Builder, group string, first bool, style Style) {
	if !first {
		b.WriteByte('\n')
	}
	b.WriteString(style.paint(bold, group, true) + "\n")
}

func (s Style) paint(attribute, text string, wanted bool) string {
	if !s.Color || !wanted {
		return text
	}
	return attribute + text + plain
}

// shown is the value as people read it: an empty one is a dash.
func shown(r config.Row) string { return cmp.Or(r.Value, "-") }

// long writes the rest of what is known of a setting.
func long(b *strings.Builder, r config.Row) {
	fmt.Fprintf(b, "      %s\n", r.Doc)
	fmt.Fprintf(b, "      accepts: %s", r.Accepts)
	if r.Default != "" {
		fmt.Fprintf(b, "; default: %s", r.Default)
	}
	if len(r.Aliases) > 0 {
		fmt.Fprintf(b, "; also: %s", strings.Join(r.Aliases, ", "))
	}
	if r.Shared {
		b.WriteString("; the same everywhere")
	}
	b.WriteByte('\n')
}

// JSON writes the rows as one array.
func JSON(w io.Writer, rows []config.Row) error {
	out := append([]config.Row{}, rows...)
	for i := range out {
		if out[i].Aliases == nil {
			out[i].Aliases = []string{}
		}
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(out)
}
