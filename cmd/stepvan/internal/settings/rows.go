package settings

import (
	"strings"

	"github.com/stepvan/stepvan/config"
)

// fromDefault is the source of a value that was not set.
const fromDefault = "default"

// Changed returns the rows whose value is not the default.
func Changed(rows []config.Row) []config.Row {
	var out []config.Row
	for _, r := range rows {
		if r.Source != fromDefault {
			out = append(out, r)
		}
	}
	return out
}

// Lookup answers like os.LookupEnv for an environment of NAME=value entries. Of
// two entries with one name the last counts.
func Lookup(environ []string) func(string) (string, bool) {
	values := make(map[string]string, len(environ))
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		values[name] = value
	}
	return func(name string) (string, bool) {
		value, ok := values[name]
		return value, ok
	}
}
