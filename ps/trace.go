package ps

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/stepvan/stepvan/trace"
)

// Trace returns a copy of the latest STEPVAN_TRACE_EVENTS entries of the node, one for each request. A worker's
// exchange with several servers has a request for each of them. The scheduler has no entries. [trace.WriteJSON] writes
// the entries for a viewer.
func (n *Node) Trace() []trace.Entry {
	var all []trace.Entry
	for _, m := range n.members {
		if m.ring != nil {
			all = append(all, m.ring.Snapshot()...)
		}
	}
	return all
}

// exportTraces writes a file for each worker and server, if the settings ask for it.
func (n *Node) exportTraces() error {
	var all []error
	for _, m := range n.members {
		if n.settings.TraceFile == "" || m.ring == nil {
			continue
		}
		path := traceName(n.settings.TraceFile, string(m.role), int(m.office.Self().Rank))
		if err := writeTrace(path, m.id.String(), m.ring); err != nil {
			all = append(all, fmt.Errorf("stop: trace: it was not written: %w: set another STEPVAN_TRACE_FILE", err))
			continue
		}
		m.log.Info().Msgf("trace written to %s: open it with ui.perfetto.dev", path)
	}
	return errors.Join(all...)
}

// traceName puts role and rank where the pattern says {role} and {rank}, else before the extension.
func traceName(pattern, role string, rank int) string {
	named := strings.NewReplacer("{role}", role, "{rank}", strconv.Itoa(rank)).Replace(pattern)
	if named != pattern {
		return named
	}
	ext := filepath.Ext(pattern)
	return fmt.Sprintf("%s-%s-%d%s", strings.TrimSuffix(pattern, ext), role, rank, ext)
}

func writeTrace(path, track string, ring *trace.Ring) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return trace.WriteJSON(f, []trace.Process{{Name: track, Entries: ring.Snapshot()}})
}
