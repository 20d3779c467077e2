package page

import (
	"fmt"
	"math"

	"github.com/stepvan/stepvan/bench"
)

// sizeAxis shows the pushed bytes, in powers of two.
var sizeAxis = axis{name: "bytes pushed", format: "bySize", step: 3}

// sweep is the section of a family with several sizes.
func (f *family) sweep() section {
	kind := kindOf(f.reports[0])
	s := section{
		Title: "By size: " + kind,
		Text:  "Medians. Dashed is the limit of the same rounds: what the same nodes need for the same bytes with nothing between. Click on the legend to show or hide a line.",
		Charts: []*chart{
			f.latencies(), f.ratios(), f.rates(),
		},
	}
	sizes := f.sizes()
	for _, i := range []int{0, len(sizes) / 2, len(sizes) - 1} {
		s.Charts = append(s.Charts, f.distribution(sizes[i]))
	}
	return s
}

func (f *family) latencies() *chart {
	c := &chart{Title: "Latency", Note: "p50 of an exchange", x: sizeAxis, y: axis{name: "p50", log: true, format: "byTime"}, hiddenAtOnce: map[string]bool{}}
	f.curves(c, func(r *bench.Report) float64 { return r.P50 }, func(r *bench.Report) float64 { return r.LimitP50 })
	for _, way := range f.ways() {
		name := way + " p99"
		c.add(line{name: name, colour: f.colours()[way], dash: "dotted", points: points(f.along(way), func(r *bench.Report) float64 { return r.P99 })})
		c.hiddenAtOnce[name] = true
	}
	c.add(line{name: "one memcpy of both", colour: "#94a3b8", dash: "dotted", points: points(f.copies(), func(r *bench.Report) float64 { return r.Memcpy })})
	return c
}

// copies is a report of each size that knows how long a copy takes.
func (f *family) copies() (out []*bench.Report) {
	for _, size := range f.sizes() {
		for _, r := range f.reports {
			if r.PushBytes == size && r.Memcpy > 0 {
				out = append(out, r)
				break
			}
		}
	}
	return out
}

func (f *family) ratios() *chart {
	c := &chart{Title: "Ratio to the limit", Note: "1 is as fast as the bare exchange", x: sizeAxis, y: axis{name: "p50 by limit", format: "byTimes"}}
	f.curves(c, func(r *bench.Report) float64 { return r.Ratio }, nil)
	return c
}

func (f *family) rates() *chart {
	rate := func(us func(*bench.Report) float64) func(*bench.Report) float64 {
		return func(r *bench.Report) float64 {
			if us(r) == 0 {
				return 0
			}
			return float64(r.PushBytes+r.PullBytes) * float64(r.Servers) / us(r) / 1e3
		}
	}
	c := &chart{Title: "Rate", Note: "bytes of both directions in the time of one exchange", x: sizeAxis, y: axis{name: "GB/s", log: true, format: "byRate"}}
	f.curves(c, rate(func(r *bench.Report) float64 { return r.P50 }), rate(func(r *bench.Report) float64 { return r.LimitP50 }))
	return c
}

// curves adds a line for each way, and for its limit.
func (f *family) curves(c *chart, figure, limit func(*bench.Report) float64) {
	for _, way := range f.ways() {
		along, colour := f.along(way), f.colours()[way]
		c.add(line{name: way, colour: colour, dash: "solid", points: points(along, figure)})
		if limit != nil {
			c.add(line{name: way + " limit", colour: colour, dash: "dashed", points: points(along, limit)})
		}
	}
}

// points leaves out figures that were not measured.
func points(reports []*bench.Report, figure func(*bench.Report) float64) (out [][2]float64) {
	for _, r := range reports {
		if v := figure(r); v > 0 && r.PushBytes > 0 {
			out = append(out, [2]float64{math.Log2(float64(r.PushBytes)), v})
		}
	}
	return out
}

// rarityAxis shows percentiles: each step is ten times as rare.
var rarityAxis = axis{name: "percent of the exchanges", format: "byRarity", step: 1}

// distribution shows all ways of one size.
func (f *family) distribution(size int64) *chart {
	c := &chart{x: rarityAxis, y: axis{name: "latency", log: true, format: "byTime"}}
	colours := f.colours()
	for _, r := range f.reports {
		if r.PushBytes != size {
			continue
		}
		way := wayOf(r)
		c.Title, c.Note = kindOf(r), sizesOf(r)
		c.add(line{name: way, colour: colours[way], dash: "solid", points: rarities(r.Curve.Percent, r.Curve.Latency, r.Curve.Count)})
		c.add(line{name: way + " limit", colour: colours[way], dash: "dashed", points: rarities(r.Curve.Percent, r.Curve.Limit, r.Curve.LimitCount)})
	}
	return c
}

func sizesOf(r *bench.Report) string {
	if r.PushBytes == 0 {
		return ""
	}
	return fmt.Sprintf("%v pushed, %v pulled", bench.Size(r.PushBytes), bench.Size(r.PullBytes))
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
