package page

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stepvan/stepvan/bench"
)

// family is reports that differ only in size and in how the bytes travel. They share charts.
type family struct {
	reports []*bench.Report
}

// fewestSizes is the least number of sizes of a curve.
const fewestSizes = 3

// families groups reports. Of several reports with one name it keeps the first.
func families(reports []*bench.Report) (out []*family) {
	byKind, seen := map[string]*family{}, map[string]bool{}
	for _, r := range reports {
		if seen[r.Name()] {
			continue
		}
		seen[r.Name()] = true
		kind := kindOf(r)
		if byKind[kind] == nil {
			byKind[kind] = &family{}
			out = append(out, byKind[kind])
		}
		byKind[kind].reports = append(byKind[kind].reports, r)
	}
	return out
}

// kindOf is the common part of the names of a family.
func kindOf(r *bench.Report) string {
	parts := []string{string(r.Workload), fmt.Sprintf("%d to %d", r.Workers, r.Servers)}
	if r.Inflight > 1 {
		parts = append(parts, fmt.Sprintf("%d in flight", r.Inflight))
	}
	if r.Bulk > 0 {
		parts = append(parts, "beside "+bench.Size(r.Bulk).String())
	}
	if r.Pin > 0 {
		parts = append(parts, fmt.Sprintf("on core %d", r.Pin))
	}
	return strings.Join(parts, ", ")
}

// wayOf is the name of a report's line in a chart.
func wayOf(r *bench.Report) string {
	parts := []string{string(r.Van)}
	if r.Nodes.Python() {
		parts = append(parts, string(r.Nodes))
	}
	if r.InPlace {
		parts = append(parts, "in place")
	}
	if r.Together {
		parts = append(parts, "one process")
	}
	if r.Progress != "auto" {
		parts = append(parts, r.Progress)
	}
	return strings.Join(parts, " ")
}

// sizes of the pushes, from small to large.
func (f *family) sizes() (out []int64) {
	for _, r := range f.reports {
		if !slices.Contains(out, r.PushBytes) {
			out = append(out, r.PushBytes)
		}
	}
	slices.Sort(out)
	return out
}

// ways lists how bytes travel, in order of appearance.
func (f *family) ways() (out []string) {
	for _, r := range f.reports {
		if way := wayOf(r); !slices.Contains(out, way) {
			out = append(out, way)
		}
	}
	return out
}

// split separates the ways with enough sizes for a curve from the other reports.
func (f *family) split() (swept *family, others []*bench.Report) {
	swept = &family{}
	for _, r := range f.reports {
		if len(f.along(wayOf(r))) >= fewestSizes {
			swept.reports = append(swept.reports, r)
		} else {
			others = append(others, r)
		}
	}
	return swept, others
}

// along lists the reports of one way, by size.
func (f *family) along(way string) (out []*bench.Report) {
	for _, size := range f.sizes() {
		i := slices.IndexFunc(f.reports, func(r *bench.Report) bool { return r.PushBytes == size && wayOf(r) == way })
		if i >= 0 {
			out = append(out, f.reports[i])
		}
	}
	return out
}

// palette has a colour for each van, and others for further ways.
var palette = map[string]string{"tcp": "#2563eb", "unix": "#0d9488", "shm": "#ea580c", "mem": "#7c3aed"}

var furtherColours = []string{"#db2777", "#65a30d", "#ca8a04", "#475569", "#0284c7", "#b91c1c"}

// colours gives every way its own colour.
func (f *family) colours() map[string]string {
	out, next := map[string]string{}, 0
	for _, way := range f.ways() {
		if c, ok := palette[way]; ok {
			out[way] = c
			continue
		}
		if van, _, _ := strings.Cut(way, " "); palette[van] != "" && !slices.Contains(f.ways(), van) && !taken(out, palette[van]) {
			out[way] = palette[van]
			continue
		}
		out[way] = furtherColours[next%len(furtherColours)]
		next++
	}
	return out
}

func taken(of map[string]string, colour string) bool {
	for _, c := range of {
		if c == colour {
			return true
		}
	}
	return false
}
