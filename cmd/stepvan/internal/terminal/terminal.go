package terminal

import (
	"io"

	"github.com/muesli/termenv"
)

// Color reports whether colours belong into w: it is a terminal that has them, and
// its user has not switched them off (NO_COLOR, CLICOLOR; CLICOLOR_FORCE wants them
// anywhere). It may be called concurrently.
func Color(w io.Writer) bool { return termenv.NewOutput(w).EnvColorProfile() != termenv.Ascii }
