package postoffice

import (
	"fmt"
	"strings"
)

// maxDisagreements bounds how many settings one refusal names.
const maxDisagreements = 8

// disagreement compares the settings that must be the same everywhere, by name.
// The error names each that differs with both values, in the scheduler's order.
func disagreement(scheduler, node []Setting) error {
	theirs := make(map[string]string, len(node))
	for _, s := range node {
		theirs[s.Name] = s.Value
	}
	var diff []string
	for _, s := range scheduler {
		v, ok := theirs[s.Name]
		delete(theirs, s.Name)
		switch {
		case !ok:
			diff = append(diff, fmt.Sprintf("%s is not known at the node and %q at the scheduler", s.Name, s.Value))
		case v != s.Value:
			diff = append(diff, fmt.Sprintf("%s is %.100q at the node and %.100q at the scheduler", s.Name, v, s.Value))
		}
	}
	for _, s := range node {
		if v, only := theirs[s.Name]; only {
			diff = append(diff, fmt.Sprintf("%.100s is %.100q at the node and not known at the scheduler", s.Name, v))
		}
	}
	if len(diff) == 0 {
		return nil
	}
	if more := len(diff) - maxDisagreements; more > 0 {
		diff = append(diff[:maxDisagreements], fmt.Sprintf("%d more differ", more))
	}
	return fmt.Errorf("%s: set the same value on every node", strings.Join(diff, "; "))
}
