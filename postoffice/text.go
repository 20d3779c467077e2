package postoffice

import (
	"fmt"
	"strings"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/text"
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

// instances names instances for people: "server 0 and worker 2, 3".
func instances(members []*member) string {
	var parts []string
	for _, role := range roles {
		var r []int
		for _, m := range members {
			if m.info.Role == role {
				r = append(r, int(m.info.Rank))
			}
		}
		switch {
		case len(r) == 0:
		case role == stepvan.RoleScheduler:
			parts = append(parts, "scheduler")
		default:
			parts = append(parts, string(role)+" "+text.Ranges(r, maxListed))
		}
	}
	return conjunction(parts)
}

// inBrackets puts text that may be empty in brackets.
func inBrackets(s string) string {
	if s == "" {
		return ""
	}
	return " (" + s + ")"
}

// seconds rounds a wait for people.
func seconds(d time.Duration) string {
	if d < 10*time.Second && d%time.Second != 0 {
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return fmt.Sprintf("%d s", int(d.Round(time.Second).Seconds()))
}
