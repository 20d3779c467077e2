package bench

import (
	"fmt"
	"strings"
)

// String names a measurement: workload, nodes, sizes and options.
func (o *Options) String() string {
	done, _ := o.withDefaults() // options with a mistake have a name, too
	return newReport(&done).Name()
}

// Name is the same for measurements of the same kind, and differs for others.
func (r *Report) Name() string {
	return fmt.Sprintf("%s %s %s", r.Van, r.Workload, r.How())
}

// How is the part of the name after van and workload.
func (r *Report) How() string {
	v, out := &r.Variant, words{nodesOf(r.Workload, r.Workers, r.Servers)}
	out.add(v.Nodes.Python(), "%s", v.Nodes)
	out.add(v.Refit == nil && r.PushBytes > 0 && r.Workload != Bus, "%v/%v", Size(r.PushBytes), Size(r.PullBytes))
	out.add(r.Workload == Bus, "%v", Size(r.PushBytes))
	out.add(v.Apart, "apart")
	if v.Refit != nil {
		out.add(v.Refit.Bytes > 0, "%v", Size(v.Refit.Bytes))
		out.add(true, "%v", v.Refit)
	}
	out.add(v.InPlace, "in place")
	out.add(r.Inflight > 1, "x%d", r.Inflight)
	out.add(v.Compute > 0, "compute %s", Micros(v.Compute))
	out.add(v.Think != "", "think %s", v.Think)
	out.add(v.Sleep != "", "sleep %s", v.Sleep)
	out.add(v.Fresh, "fresh")
	out.add(v.Bulk > 0, "beside %v", Size(v.Bulk))
	out.add(v.Busy, "busy cores")
	out.add(v.Quota > 0, "quota %.4g", v.Quota)
	out.add(v.Together, "one process")
	out.add(v.Pin > 0, "core %d", v.Pin)
	out.add(r.Progress != progressAuto, "%s", r.Progress)
	return strings.Join(out, " ")
}

// Family is the same for measurements that differ only in their size and in their DataPath.
func (r *Report) Family() string {
	v, out := &r.Variant, words{string(r.Workload), fmt.Sprintf("%d to %d", r.Workers, r.Servers)}
	if v.Refit != nil {
		out = append(out[:1], v.Refit.String())
	}
	out.add(r.Inflight > 1, "%d in flight", r.Inflight)
	out.add(v.Think != "", "think %s", v.Think)
	out.add(v.Sleep != "", "sleep %s", v.Sleep)
	out.add(v.Fresh, "fresh")
	out.add(v.Bulk > 0, "beside %v", Size(v.Bulk))
	out.add(v.Busy, "busy cores")
	out.add(v.Quota > 0, "quota %.4g", v.Quota)
	out.add(v.Pin > 0, "on core %d", v.Pin)
	return strings.Join(out, ", ")
}

// DataPath says how the bytes travel.
func (r *Report) DataPath() string {
	v, out := &r.Variant, words{string(r.Van)}
	out.add(v.Nodes.Python(), "%s", v.Nodes)
	out.add(v.InPlace, "in place")
	out.add(v.Apart, "apart")
	out.add(v.Together, "one process")
	out.add(r.Progress != progressAuto, "%s", r.Progress)
	return strings.Join(out, " ")
}

// words are the parts of a name.
type words []string

// add adds a part that a measurement has.
func (w *words) add(has bool, format string, args ...any) {
	if has {
		*w = append(*w, fmt.Sprintf(format, args...))
	}
}

// nodesOf writes the numbers of a workload: 8w4s, or 12p where all have the role peer.
func nodesOf(w Workload, workers, servers int) string {
	if workloads[w].alike {
		return fmt.Sprintf("%dp", workers+servers)
	}
	return nodes(workers, servers)
}

// nodes writes the numbers as launch reads them: 8w4s.
func nodes(workers, servers int) string { return fmt.Sprintf("%dw%ds", workers, servers) }

// nodesText writes the numbers of o.
func nodesText(o *Options) string {
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
