package trace

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
)

// formatName marks the files that Merge understands.
const formatName = "stepvan-trace"

// Phases of the trace-event format.
const (
	phaseSlice = "X" // has a start and a length
	phaseMeta  = "M" // names a track
)

// event is one line of the trace-event format. Slices of one thread (Tid) nest
// by time; of two with one start the outer one comes first in the file.
type event struct {
	Name  string  `json:"name"`
	Cat   string  `json:"cat,omitempty"`
	Phase string  `json:"ph"`
	Start micros  `json:"ts"`
	Len   *micros `json:"dur,omitempty"`
	Pid   int     `json:"pid"`
	Tid   int     `json:"tid"`
	Args  any     `json:"args,omitempty"`
}

// other is the part of the file that viewers show and do not interpret.
type other struct {
	Format string `json:"format"`
	Origin string `json:"origin_ns"` // the time of ts 0, decimal: JSON numbers lose digits
}

// encoder writes a file event by event.
type encoder struct {
	w     *bufio.Writer
	first bool
	err   error
}

func newEncoder(w io.Writer) *encoder {
	e := &encoder{w: bufio.NewWriter(w), first: true}
	e.text(`{"traceEvents":[`)
	return e
}

// text writes s. The writer keeps its first error until close.
func (e *encoder) text(s string) { _, _ = e.w.WriteString(s) }

// json writes v, and keeps the first error.
func (e *encoder) json(v any) {
	b, err := json.Marshal(v)
	if e.err == nil {
		e.err = err
	}
	_, _ = e.w.Write(b)
}

func (e *encoder) event(v *event) {
	if !e.first {
		e.text(",")
	}
	e.first = false
	e.text("\n")
	e.json(v)
}

// close ends the file. origin is the time of ts 0 in ns.
func (e *encoder) close(origin int64) error {
	e.text("\n],\n\"displayTimeUnit\":\"ns\",\"otherData\":")
	e.json(other{Format: formatName, Origin: strconv.FormatInt(origin, 10)})
	e.text("}\n")
	if e.err == nil {
		e.err = e.w.Flush()
	}
	if e.err != nil {
		return fmt.Errorf("write trace: %w", e.err)
	}
	return nil
}

// named writes the events that give a process or a thread its name and place.
func (e *encoder) named(what string, pid, tid int, name string, index int) {
	e.event(&event{Name: what + "_name", Phase: phaseMeta, Pid: pid, Tid: tid, Args: nameArgs{name}})
	e.event(&event{Name: what + "_sort_index", Phase: phaseMeta, Pid: pid, Tid: tid, Args: sortArgs{index}})
}

type nameArgs struct {
	Name string `json:"name"`
}

type sortArgs struct {
	Index int `json:"sort_index"`
}
