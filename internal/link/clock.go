package link

import "github.com/stepvan/stepvan/trace"

// now is the clock of all timestamps that services see.
func now() int64 { return trace.Now() }
