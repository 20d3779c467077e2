package bench

import (
	"errors"
	"strings"

	"github.com/stepvan/stepvan/internal/launch"
)

// Reason is one line about why something was not measured: what a process that failed said last, without
// its name, which is that of whoever failed first.
func Reason(err error) string {
	var failure *launch.Failure
	text := err.Error()
	if errors.As(err, &failure) && len(failure.Stderr) > 0 {
		text = failure.Stderr[len(failure.Stderr)-1]
		if _, after, found := strings.Cut(text, ": "); found {
			text = after
		}
	}
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}
