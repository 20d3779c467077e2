package doctor

import (
	"cmp"
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/internal/text"
)

// checkSettings reports what config.FromEnv found.
func (d *doctor) checkSettings(mistakes error, warnings []config.Warning) {
	for _, err := range split(mistakes) {
		var c *stepvan.ConfigError
		switch {
		case !errors.As(err, &c):
		case slices.Contains(pinningKeys, c.Key):
			d.pinning = true
			d.fail("settings", assignment(c.Key, c.Value), c.Key+": "+c.Reason)
			continue
		default:
			d.fail("settings", assignment(c.Key, c.Value), c.Key+" "+c.Reason)
			continue
		}
		d.fail("settings", err.Error(), "stepvan env")
	}
	for _, w := range warnings {
		if slices.Contains(pinningKeys, w.Key) {
			d.pinning = true
			d.warn("pinning", w.Reason, "") // the node starts without it
			continue
		}
		d.warn("settings", assignment(w.Key, w.Value), text.Cut(w.Key)+" "+w.Reason)
	}
	if mistakes == nil && len(warnings) == 0 {
		d.ok("settings", "no mistakes")
	}
	d.checkTraceFile()
}

// pinningKeys are the settings that name cores. ps knows the cores of the process, so what ps says of these settings
// replaces checkPinning.
var pinningKeys = []string{
	"STEPVAN_BIND_CPU_CORE", "STEPMESH_BIND_CPU_CORE", "STEPMESH_CPU_START_OFFSET", "STEPMESH_CPU_CORES_PER_GPU", "STEPMESH_CPU_CORES_PER_SOCKET",
}

// split takes apart what errors.Join has joined, and what was joined in that.
func split(err error) (all []error) {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	for _, one := range joined.Unwrap() {
		all = append(all, split(one)...)
	}
	return all
}

func assignment(key, value string) string {
	if value == "" {
		return text.Cut(key)
	}
	return text.Cut(key) + "=" + text.Cut(value)
}

// checkTraceFile looks for the folder of the trace file. A node writes the file at the end of a
// run, when an error comes too late.
func (d *doctor) checkTraceFile() {
	file := d.settings.TraceFile
	if file == "" {
		return
	}
	abs, err := filepath.Abs(file)
	if err != nil {
		return
	}
	dir := path.Dir(abs)
	info, err := fs.Stat(d.sys.Root, cmp.Or(strings.TrimPrefix(dir, "/"), "."))
	if err != nil || !info.IsDir() {
		d.fail("trace file", dir+" is not a directory", "mkdir -p "+dir+", or set STEPVAN_TRACE_FILE to a file elsewhere")
		return
	}
	d.ok("trace file", dir+" is there")
}
