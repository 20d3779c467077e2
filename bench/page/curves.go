package page

import (
	"fmt"
	"math"

	"github.com/stepvan/stepvan/bench"
)

// The axes. Sizes are powers of two; each step of rarity is ten times as rare.
var (
	sizeAxis   = axis{Name: "bytes pushed", Format: "bySize", Step: 3}
	rarityAxis = axis{Name: "percent of the exchanges", Format: "byRarity", Step: 1}
)

// figure is a number of a report.
type figure func(*bench.Report) float64

func p50(r *bench.Report) float64      { return r.P50 }
func limitP50(r *bench.Report) float64 { return r.LimitP50 }

// rate is the bytes of an exchange by a time in us, in GB/s.
func rate(us figure) figure {
	return func(r *bench.Report) float64 {
		bytes := float64(r.PushBytes+r.PullBytes) * float64(r.Servers)
		return bytes / us(r) / 1e3
	}
}

// sweep is the section of a family with several sizes.
func (f *family) sweep() section {
	latencies := &chart{Title: "Latency", Note: "p50 of an exchange", X: sizeAxis, Y: axis{Name: "p50", Log: true, Format: "byTime"}}
	f.curves(latencies, p50, limitP50)
	for _, path := range f.dataPaths() {
		p99 := points(f.along(path), func(r *bench.Report) float64 { return r.P99 })
		latencies.add(line{Name: path + " p99", Colour: f.colours()[path], Dash: "dotted", Hidden: true, Points: p99})
	}
	copies := points(f.copies(), func(r *bench.Report) float64 { return r.Details.Memcpy })
	latencies.add(line{Name: "one memcpy of both", Colour: "#94a3b8", Dash: "dotted", Points: copies})

	ratios := &chart{Title: "Ratio to the limit", Note: "1 is as fast as the bare exchange", X: sizeAxis, Y: axis{Name: "p50 by limit", Format: "byTimes"}}
	f.curves(ratios, func(r *bench.Report) float64 { return r.Ratio }, nil)

	rates := &chart{Title: "Rate", Note: "bytes of both directions in the time of one exchange", X: sizeAxis, Y: axis{Name: "GB/s", Log: true, Format: "byRate"}}
	f.curves(rates, rate(p50), rate(limitP50))

	s := section{
		Title:  "By size: " + f.reports[0].Family(),
		Text:   "Medians. Dashed is the limit of the same rounds: what the same nodes need for the same bytes with nothing between. Click on the legend to show or hide a line.",
		Charts: []*chart{latencies, ratios, rates},
	}
	sizes := f.sizes()
	for _, i := range []int{0, len(sizes) / 2, len(sizes) - 1} {
		s.Charts = append(s.Charts, f.distribution(sizes[i]))
	}
	return s
}

// copies is a report of each size that knows how long a copy takes.
func (f *family) copies() (out []*bench.Report) {
	for _, size := range f.sizes() {
		if r := f.find(func(r *bench.Report) bool { return r.PushBytes == size && r.Details.Memcpy > 0 }); r != nil {
			out = append(out, r)
		}
	}
	return out
}

// curves adds a line for each path, and for its limit.
func (f *family) curves(c *chart, own, limit figure) {
	for _, path := range f.dataPaths() {
		along, colour := f.along(path), f.colours()[path]
		c.add(line{Name: path, Colour: colour, Dash: "solid", Points: points(along, own)})
		if limit != nil {
			c.add(line{Name: path + " limit", Colour: colour, Dash: "dashed", Points: points(along, limit)})
		}
	}
}

// points leaves out figures that were not measured.
func points(reports []*bench.Report, of figure) (out [][2]float64) {
	for _, r := range reports {
		if v := of(r); v > 0 && !math.IsInf(v, 0) && r.PushBytes > 0 {
			out = append(out, [2]float64{math.Log2(float64(r.PushBytes)), v})
		}
	}
	return out
}

// distribution shows all data paths of one size.
func (f *family) distribution(size int64) *chart {
	c := &chart{X: rarityAxis, Y: axis{Name: "latency", Log: true, Format: "byTime"}}
	for _, r := range f.reports {
		if r.PushBytes != size {
			continue
		}
		path, curve := r.DataPath(), &r.Details.Curve
		colour := f.colours()[path]
		if c.Title = r.Family(); size > 0 {
			c.Note = fmt.Sprintf("%v pushed, %v pulled", bench.Size(r.PushBytes), bench.Size(r.PullBytes))
		}
		c.add(line{Name: path, Colour: colour, Dash: "solid", Points: rarities(curve.Percent, curve.Latency, curve.Count)})
		c.add(line{Name: path + " limit", Colour: colour, Dash: "dashed", Points: rarities(curve.Percent, curve.Limit, curve.LimitCount)})
	}
	return c
}

// rarities are the levels that at least one exchange exceeds, and the maximum of all.
func rarities(percent, us []float64, count int64) (out [][2]float64) {
	if count == 0 {
		return nil
	}
	end := math.Log10(float64(count))
	for i := range min(len(percent), len(us)) {
		x := end
		if percent[i] < 100 {
			x = -math.Log10(1 - percent[i]/100)
		}
		if us[i] > 0 && (percent[i] == 100 || x < end) {
			out = append(out, [2]float64{x, us[i]})
		}
	}
	return out
}
