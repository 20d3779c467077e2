package trace

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/text"
)

// file is a parsed trace.
type file struct {
	Events []fileEvent `json:"traceEvents"`
	Other  other       `json:"otherData"`
	origin int64
}

// fileEvent keeps the arguments as they are.
type fileEvent struct {
	event
	Args json.RawMessage `json:"args,omitempty"`
}

// Merge joins files that several processes wrote with [WriteJSON] into one file with one time axis. Tracks are in the
// order of the files. Merge reads all files into memory before it writes to out. The error is stepvan.ErrInvalid when
// WriteJSON did not write a file. Its text says which file that is, counted from 1. Merge also returns the errors of
// reading the files and of writing to out.
func Merge(out io.Writer, files ...io.Reader) error {
	all := make([]*file, len(files))
	for i, r := range files {
		f, err := parse(r)
		if err != nil {
			return fmt.Errorf("merge trace: file %d of %d: %w", i+1, len(files), err)
		}
		all[i] = f
	}
	origin := firstOrigin(all)
	for i, f := range all {
		if err := f.shift(f.origin - origin); err != nil {
			return fmt.Errorf("merge trace: file %d of %d: %w", i+1, len(files), err)
		}
	}
	return writeMerged(out, all, origin)
}

func parse(r io.Reader) (*file, error) {
	f := new(file)
	b, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(b, f); err != nil {
		return nil, errs.Invalid("not a trace that stepvan wrote: %v", err)
	}
	if f.Other.Format != formatName {
		return nil, errs.Invalid("not a trace that stepvan wrote: otherData.format is wrong (got %q, want %q)", text.Cut(f.Other.Format), formatName)
	}
	f.origin, err = strconv.ParseInt(f.Other.Origin, 10, 64)
	if err != nil || f.origin < 0 {
		return nil, errs.Invalid("otherData.origin_ns is not a time (got %q, want ns from 0)", text.Cut(f.Other.Origin))
	}
	return f, f.check()
}

func (f *file) check() error {
	for i := range f.Events {
		switch e := &f.Events[i]; {
		case e.Phase != phaseSlice && e.Phase != phaseMeta:
			return errs.Invalid("event %d: its phase is unknown (got %q, want %q or %q)", i, text.Cut(e.Phase), phaseSlice, phaseMeta)
		case e.Phase == phaseSlice && e.Len == nil:
			return errs.Invalid("event %d: it is a slice without a length", i)
		}
	}
	return nil
}

// firstOrigin is the earliest origin of the files that show anything: without a slice the origin says nothing.
func firstOrigin(all []*file) int64 {
	first := int64(math.MaxInt64)
	for _, f := range all {
		if slices.ContainsFunc(f.Events, func(e fileEvent) bool { return e.Phase == phaseSlice }) {
			first = min(first, f.origin)
		}
	}
	if first == math.MaxInt64 {
		return 0
	}
	return first
}

// shift moves the slices by ns, which is not negative where there are any.
func (f *file) shift(ns int64) error {
	for i := range f.Events {
		e := &f.Events[i]
		if e.Phase != phaseSlice {
			continue
		}
		if int64(e.Start) > math.MaxInt64-ns {
			return errs.Invalid("event %d: its time is out of range (got %d ns after the origin of its file)", i, e.Start)
		}
		e.Start += micros(ns)
	}
	return nil
}

// writeMerged gives every process of every file a number of its own.
func writeMerged(w io.Writer, all []*file, origin int64) error {
	out, next := newEncoder(w), 1
	for _, f := range all {
		pids := map[int]int{}
		for i := range f.Events {
			e := &f.Events[i]
			pid, known := pids[e.Pid]
			if !known {
				pid, pids[e.Pid] = next, next
				next++
			}
			out.moved(e, pid)
		}
	}
	return out.close(origin)
}

func (e *encoder) moved(v *fileEvent, pid int) {
	moved := v.event
	moved.Pid = pid
	switch {
	case v.Name == "process_sort_index":
		moved.Args = sortArgs{pid}
	case v.Args != nil:
		moved.Args = v.Args
	}
	e.event(&moved)
}
