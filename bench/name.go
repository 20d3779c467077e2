package bench

import (
	"fmt"
	"strings"
)

// String names a measurement: workload, nodes, sizes and options.
func (o *Options) String() string {
	done, _ := o.withDefaults() // options with a mistake have a name, too
	return newReport(&done, newLatencies()).Name()
}

// Name is the same for measurements of the same kind, and differs for others.
func (r *Report) Name() string {
	return fmt.Sprintf("%s %s %s", r.Van, r.Workload, r.How())
}

// How is the part of the name after van and workload.
func (r *Report) How() string {
	parts := []string{nodes(r.Workers, r.Servers)}
	if r.Nodes.Python() {
		parts = append(parts, string(r.Nodes))
	}
	add := func(is bool, format string, args ...any) {
		if is {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	add(r.PushBytes > 0, "%v/%v", Size(r.PushBytes), Size(r.PullBytes))
	add(r.InPlace, "in place")
	add(r.Inflight > 1, "x%d", r.Inflight)
	add(r.Compute > 0, "compute %s", micros(r.Compute))
	add(r.Bulk > 0, "beside %v", Size(r.Bulk))
	add(r.Together, "one process")
	add(r.Pin > 0, "core %d", r.Pin)
	add(r.Progress != progressAuto, "%s", r.Progress)
	return strings.Join(parts, " ")
}

// nodes writes the numbers as launch reads them: 8w4s.
func nodes(workers, servers int) string { return fmt.Sprintf("%dw%ds", workers, servers) }

func (o *Options) nodes() string {
	done, _ := o.withDefaults()
	return nodes(done.Workers, done.Servers)
}

// vanTitle is the van's name at the beginning of a line.
func vanTitle(v Van) string {
	if v == TCP {
		return "TCP"
	}
	return string(v)
}
