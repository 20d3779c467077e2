package doctor

import (
	"cmp"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/internal/affinity"
	"github.com/stepvan/stepvan/internal/reach"
	"github.com/stepvan/stepvan/internal/text"
)

// checkSettings reports what a start refuses of the settings, and what it warns of.
func (d *doctor) checkSettings(mistakes error, warnings []config.Warning) {
	for _, err := range split(mistakes) {
		d.refused("settings", err)
	}
	bound := reach.Cores(&d.settings)
	for _, w := range warnings {
		if slices.Contains(bindKeys, w.Key) {
			bound = affinity.Set{}
			d.warn("pinning", w.Reason, "") // the node starts without it
			continue
		}
		d.warn("settings", assignment(w.Key, w.Value), text.Cut(w.Key)+": "+w.Reason)
	}
	if mistakes == nil && len(warnings) == 0 {
		d.ok("settings", "no mistakes")
	}
	if mistakes == nil && bound.Len() > 0 {
		d.ok("pinning", fmt.Sprintf("cores %v", bound))
	}
	d.checkTraceFile()
}

// bindKeys are the settings with which reach.Check says that a node starts without its cores.
var bindKeys = []string{"STEPVAN_BIND_CPU_CORE", "STEPMESH_BIND_CPU_CORE"}

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
	info, err := fs.Stat(d.sys.Machine.Root, cmp.Or(strings.TrimPrefix(dir, "/"), "."))
	if err != nil || !info.IsDir() {
		d.fail("trace file", dir+" is not a directory", "mkdir -p "+dir+", or set STEPVAN_TRACE_FILE to a file elsewhere")
		return
	}
	d.ok("trace file", dir+" is there")
}

// briefSilence is how long a healthy node may be silent while its process waits for a core or for
// memory.
const briefSilence = 200 * time.Millisecond

// checkHeartbeats finds a timeout so short that healthy nodes count as lost.
func (d *doctor) checkHeartbeats() {
	s := d.settings
	if s.HeartbeatTimeout == 0 {
		d.ok("heartbeats", "off: a silent peer is noticed when its connection breaks")
		return
	}
	found := fmt.Sprintf("a peer that is silent for %v is lost", s.HeartbeatTimeout)
	if s.HeartbeatTimeout < briefSilence {
		d.warn("heartbeats", found+", and a healthy peer may be silent for that long", fmt.Sprintf("set PS_HEARTBEAT_TIMEOUT to %v or more, the same everywhere", briefSilence))
		return
	}
	d.ok("heartbeats", found)
}
