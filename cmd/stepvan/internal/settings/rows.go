package settings

import "github.com/stepvan/stepvan/config"

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
