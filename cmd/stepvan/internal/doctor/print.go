package doctor

import (
	"fmt"
	"io"
	"strings"
)

// colours of the statuses, as terminals take them.
var colours = [...]string{OK: "\x1b[32m", Warn: "\x1b[33m", Fail: "\x1b[31m"}

// Print writes one line for each check, with its fix below, and a last line with the counts. The
// error comes from w.
func Print(w io.Writer, checks []Check, color bool) error {
	width := 0
	for _, c := range checks {
		width = max(width, len(c.Name))
	}
	var b strings.Builder
	for _, c := range checks {
		fmt.Fprintf(&b, "%s  %-*s  %s\n", statusWord(c.Status, color), width, c.Name, c.Found)
		if c.Fix != "" {
			fmt.Fprintf(&b, "      %*s  %s %s\n", width, "", fixLabel(c.Status), c.Fix)
		}
	}
	b.WriteString(summary(checks))
	_, err := io.WriteString(w, b.String())
	return err
}

func statusWord(s Status, color bool) string {
	word := fmt.Sprintf("%-4s", s)
	if color {
		return colours[s] + word + "\x1b[0m"
	}
	return word
}

func fixLabel(s Status) string {
	if s == OK {
		return "better:"
	}
	return "to do:"
}

func summary(checks []Check) string {
	var n [Fail + 1]int
	for _, c := range checks {
		n[c.Status]++
	}
	switch {
	case n[Fail] > 0:
		return fmt.Sprintf("\n%d to repair before a node can start, %d to look at\n", n[Fail], n[Warn])
	case n[Warn] > 0:
		return fmt.Sprintf("\nnothing prevents a start, %d to look at\n", n[Warn])
	}
	return "\nnothing to do\n"
}
