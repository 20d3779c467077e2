package page

import (
	"maps"
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
	byName, seen := map[string]*family{}, map[string]bool{}
	for _, r := range reports {
		if seen[r.Name()] {
			continue
		}
		seen[r.Name()] = true
		f := byName[r.Family()]
		if f == nil {
			f = &family{}
			byName[r.Family()] = f
			out = append(out, f)
		}
		f.reports = append(f.reports, r)
	}
	return out
}

// sizes of the pushes, from small to large.
func (f *family) sizes() []int64 {
	all := map[int64]bool{}
	for _, r := range f.reports {
		all[r.PushBytes] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// dataPaths lists how bytes travel, in order of appearance.
func (f *family) dataPaths() (out []string) {
	for _, r := range f.reports {
		if path := r.DataPath(); !slices.Contains(out, path) {
			out = append(out, path)
		}
	}
	return out
}

// find returns the first report that has what is wanted, or nil.
func (f *family) find(wanted func(*bench.Report) bool) *bench.Report {
	if i := slices.IndexFunc(f.reports, wanted); i >= 0 {
		return f.reports[i]
	}
	return nil
}

// split separates the data paths with enough sizes for a curve from the other reports.
func (f *family) split() (swept *family, others []*bench.Report) {
	swept = &family{}
	for _, r := range f.reports {
		if len(f.along(r.DataPath())) >= fewestSizes {
			swept.reports = append(swept.reports, r)
		} else {
			others = append(others, r)
		}
	}
	return swept, others
}

// along lists the reports of one path, by size.
func (f *family) along(path string) (out []*bench.Report) {
	for _, size := range f.sizes() {
		if r := f.find(func(r *bench.Report) bool { return r.PushBytes == size && r.DataPath() == path }); r != nil {
			out = append(out, r)
		}
	}
	return out
}

// palette has a colour for each van, and others for further ones.
var palette = map[string]string{"tcp": "#2563eb", "unix": "#0d9488", "shm": "#ea580c", "mem": "#7c3aed", "rdma": "#be123c"}

var furtherColours = []string{"#db2777", "#65a30d", "#ca8a04", "#475569", "#0284c7", "#b91c1c"}

// colours gives every path its own colour. The first path of a van has the van's.
func (f *family) colours() map[string]string {
	out, taken, next := map[string]string{}, map[string]bool{}, 0
	for _, path := range f.dataPaths() {
		van, _, _ := strings.Cut(path, " ")
		colour := palette[van]
		if colour == "" || taken[van] {
			colour = furtherColours[next%len(furtherColours)]
			next++
		}
		taken[van], out[path] = true, colour
	}
	return out
}
