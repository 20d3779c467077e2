package config

import (
	"fmt"

	"github.com/stepvan/stepvan/internal/text"
)

// Warning is something about the environment that does not stop the node and
// that its user should know. It is logged as one line.
type Warning struct {
	Key    string // the variable that the user wrote
	Value  string
	Reason string // what is odd and what to set
}

// String reads `STEPVAN_VNA="tcp": is not known; did you mean STEPVAN_VAN?`.
func (w Warning) String() string {
	if w.Value == "" {
		return text.Cut(w.Key) + ": " + w.Reason
	}
	return fmt.Sprintf("%s=%q: %s", text.Cut(w.Key), text.Cut(w.Value), w.Reason)
}
