package terminal

import (
	"io"
	"os"
	"slices"
	"strings"

	"github.com/mattn/go-isatty"

	"github.com/stepvan/stepvan/config"
)

// Color reports whether w should get colours. It should when it is a terminal that has
// colours, unless its user switched them off (NO_COLOR, CLICOLOR=0). CLICOLOR_FORCE asks for
// colours on any output. Any goroutine may call it.
func Color(w io.Writer) bool {
	force := value("CLICOLOR_FORCE")
	forced := force != "" && force != "0"
	if value("NO_COLOR") != "" || value("CLICOLOR") == "0" && !forced {
		return false
	}
	f, ok := w.(*os.File)
	return forced || ok && value("CI") == "" && isatty.IsTerminal(f.Fd()) && hasColors()
}

// hasColors reports whether the environment names a terminal with colours.
func hasColors() bool {
	term := value("TERM")
	return value("GOOGLE_CLOUD_SHELL") == "true" ||
		slices.Contains([]string{"24bit", "truecolor", "yes", "true"}, strings.ToLower(value("COLORTERM"))) ||
		slices.Contains([]string{"alacritty", "contour", "linux", "rio", "wezterm", "xterm", "xterm-ghostty", "xterm-kitty"}, term) ||
		strings.Contains(term, "color") || strings.Contains(term, "ansi")
}

func value(name string) string {
	v, _ := config.OfProcess(name)
	return v
}
