package page

import (
	"fmt"
	"math"
	"slices"

	"github.com/stepvan/stepvan/bench"
	"github.com/stepvan/stepvan/bench/work"
)

// overheads are reports that differ only in how long the server computes, and in how the bytes travel.
type overheads struct {
	title string
	family
}

// thinkAxis shows powers of ten.
var thinkAxis = axis{Name: "time that the server computes", Format: "byDecade", Step: 1}

// computing is the constant time in us that the server of a report computes; 0: none, or not constant.
func computing(r *bench.Report) float64 {
	if r.Variant.Think == "" {
		return 0
	}
	times, err := work.ParseTimes(r.Variant.Think)
	constant, is := times.Constant()
	if err != nil || !is {
		return 0
	}
	return float64(constant.Nanoseconds()) / 1e3
}

// overheadSections makes a section for each series of reports with enough times for a curve.
func overheadSections(reports []*bench.Report) (out []section) {
	for _, o := range allOverheads(reports) {
		if s := o.section(); len(s.Charts) > 0 {
			out = append(out, s)
		}
	}
	return out
}

// allOverheads groups the reports whose servers compute. Of several reports with one name it keeps the first.
func allOverheads(reports []*bench.Report) (out []*overheads) {
	byTitle, seen := map[string]*overheads{}, map[string]bool{}
	for _, r := range reports {
		if computing(r) == 0 || seen[r.Name()] {
			continue
		}
		seen[r.Name()] = true
		plain := *r
		plain.Variant.Think = ""
		title := fmt.Sprintf("%s, %v pushed, %v pulled", plain.Family(), bench.Size(r.PushBytes), bench.Size(r.PullBytes))
		o := byTitle[title]
		if o == nil {
			o = &overheads{title: title}
			byTitle[title], out = o, append(out, o)
		}
		o.reports = append(o.reports, r)
	}
	return out
}

// section draws p50 and p99 of the paths that have enough times.
func (o *overheads) section() section {
	s := section{
		Title: "Above the computing: " + o.title,
		Text: "The server keeps its core busy before it answers; the charts show what an exchange takes above that. " +
			"Dashed is the limit of the same rounds: bare processes that compute as long.",
	}
	for _, c := range []*chart{
		o.chart("p50", p50, limitP50),
		o.chart("p99", func(r *bench.Report) float64 { return r.P99 }, (*bench.Report).LimitP99),
	} {
		if !c.empty() {
			s.Charts = append(s.Charts, c)
		}
	}
	return s
}

func (o *overheads) chart(level string, own, limit figure) *chart {
	c := &chart{Title: "Above the computing, " + level, Note: "by the time that the server computes", X: thinkAxis, Y: axis{Name: level, Log: true, Format: "byTime"}}
	for _, path := range o.dataPaths() {
		along, colour := o.alongTimes(path), o.colours()[path]
		if len(along) < fewestSizes {
			continue
		}
		c.add(line{Name: path, Colour: colour, Dash: "solid", Points: thinkPoints(along, own)})
		if !along[0].Variant.Nodes.Python() { // those have the nodes in Go as their limit
			c.add(line{Name: path + " limit", Colour: colour, Dash: "dashed", Points: thinkPoints(along, limit)})
		}
	}
	return c
}

// alongTimes lists the reports of one path, by time.
func (o *overheads) alongTimes(path string) (out []*bench.Report) {
	for _, r := range o.reports {
		if r.DataPath() == path {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b *bench.Report) int { return int(math.Copysign(1, computing(a)-computing(b))) })
	return out
}

// thinkPoints leaves out figures that were not measured.
func thinkPoints(reports []*bench.Report, of figure) (out [][2]float64) {
	for _, r := range reports {
		if v := of(r); v > 0 {
			out = append(out, [2]float64{math.Log10(computing(r)), v})
		}
	}
	return out
}
