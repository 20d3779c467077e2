package trace

import (
	"fmt"
	"io"
)

// WriteJSON writes the trace-event format, which chrome://tracing and https://ui.perfetto.dev open. Every process is a
// track. In a track every peer has as many rows as it has requests in flight at once. In the track of a worker a
// request has the parts send, network, server, network and back. The part server consists of queue, compute and
// respond. In the track of a server a request has only these three.
//
// WriteJSON writes an entry when it has all stamps of the worker or all stamps of the server. It leaves out the others.
// It returns the errors of w.
func WriteJSON(w io.Writer, processes []Process) error {
	origin := earliest(processes)
	out := newEncoder(w)
	for i := range processes {
		out.process(i+1, &processes[i], origin)
	}
	return out.close(origin)
}

// earliest is the first time in the view, or 0 if there is nothing to show.
func earliest(processes []Process) int64 {
	first, found := int64(0), false
	for i := range processes {
		p := &processes[i]
		for k := range p.Entries {
			if begin, _, ok := p.Entries[k].span(); ok && (!found || begin+p.Offset < first) {
				first, found = begin+p.Offset, true
			}
		}
	}
	return first
}

func (e *encoder) process(pid int, p *Process, origin int64) {
	e.named("process", pid, 0, p.Name, pid)
	for i, l := range lanes(p.Entries) {
		t := track{out: e, pid: pid, tid: i + 1, shift: p.Offset - origin}
		e.named("thread", pid, t.tid, l.name(), t.tid)
		for _, entry := range l.entries {
			t.entry(entry)
		}
	}
}

func (l *lane) name() string {
	role := "worker"
	if l.server {
		role = "server"
	}
	if l.index == 0 {
		return fmt.Sprintf("%s %d", role, l.peer)
	}
	return fmt.Sprintf("%s %d, in flight %d", role, l.peer, l.index+1)
}
