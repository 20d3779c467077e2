package postoffice

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/stepvan/stepvan"
)

const (
	maxListed = 16   // ranks or names in one message for people
	maxText   = 2048 // bytes of text that is taken from a peer
)

// conjunction reads "a, b and c".
func conjunction(parts []string) string {
	if len(parts) < 2 {
		return strings.Join(parts, "")
	}
	last := len(parts) - 1
	return strings.Join(parts[:last], ", ") + " and " + parts[last]
}

// ranks lists numbers for people: "2, 3, 7-12 and 40 more". It sorts them.
func ranks(r []int) string {
	slices.Sort(r)
	var parts []string
	for i := 0; i < len(r); {
		end := i
		for end+1 < len(r) && r[end+1] == r[end]+1 {
			end++
		}
		if len(parts) == maxListed {
			return fmt.Sprintf("%s and %d more", strings.Join(parts, ", "), len(r)-i)
		}
		if end > i+1 {
			parts = append(parts, fmt.Sprintf("%d-%d", r[i], r[end]))
		} else {
			end = i
			parts = append(parts, fmt.Sprint(r[i]))
		}
		i = end + 1
	}
	return strings.Join(parts, ", ")
}

// instances names instances for people: "server 0 and worker 2, 3".
func instances(nodes []Peer) string {
	var parts []string
	for _, role := range roles {
		var r []int
		for _, n := range nodes {
			if n.Role == role {
				r = append(r, int(n.Rank))
			}
		}
		switch {
		case len(r) == 0:
		case role == stepvan.RoleScheduler:
			parts = append(parts, "scheduler")
		default:
			parts = append(parts, string(role)+" "+ranks(r))
		}
	}
	return conjunction(parts)
}

// inBrackets puts text that may be empty in brackets.
func inBrackets(text string) string {
	if text == "" {
		return ""
	}
	return " (" + text + ")"
}

// printable makes text of a peer fit for a log: one line, bounded, no control characters.
func printable(s string, limit int) string {
	if len(s) > limit {
		s = s[:limit]
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '.'
		}
		return r
	}, strings.ToValidUTF8(s, "."))
}

// seconds rounds a wait for people.
func seconds(d time.Duration) string {
	if d < 10*time.Second && d%time.Second != 0 {
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return fmt.Sprintf("%d s", int(d.Round(time.Second).Seconds()))
}
