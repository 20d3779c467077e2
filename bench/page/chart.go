package page

import (
	"encoding/json"
	"html/template"
	"strconv"
	"strings"

	"github.com/go-echarts/go-echarts/v2/charts"
	"github.com/go-echarts/go-echarts/v2/opts"
)

// chart is lines over an axis of numbers. The axes' functions are of page.js.
type chart struct {
	ID           string // set once all are there
	Title, Note  string
	x, y         axis
	lines        []line
	hiddenAtOnce map[string]bool // lines that a click on the legend shows
}

type axis struct {
	name   string
	log    bool
	format string // name of a function
	step   float64
}

type line struct {
	name, colour string
	dash         string // solid, dashed, dotted
	points       [][2]float64
}

func (c *chart) add(l line) {
	if len(l.points) > 0 {
		c.lines = append(c.lines, l)
	}
}

func (c *chart) empty() bool { return len(c.lines) == 0 }

func (c *chart) build() *charts.Line {
	l := charts.NewLine()
	l.SetGlobalOptions(
		charts.WithAnimation(false),
		charts.WithXAxisOpts(opts.XAxis{
			Type: "value", Name: c.x.name, NameLocation: "middle", NameGap: 30, Min: "dataMin", Max: "dataMax", MinInterval: c.x.step, MaxInterval: c.x.step,
			AxisLabel: &opts.AxisLabel{Formatter: opts.FuncOpts(c.x.format), HideOverlap: opts.Bool(true)},
			AxisTick:  &opts.AxisTick{Show: opts.Bool(true)},
			SplitLine: &opts.SplitLine{Show: opts.Bool(true), LineStyle: &opts.LineStyle{Color: "#eef2f7"}},
		}),
		charts.WithYAxisOpts(opts.YAxis{
			Type: c.y.kind(), Name: c.y.name, NameLocation: "end", NameGap: 14,
			AxisLabel: &opts.AxisLabel{Formatter: opts.FuncOpts(c.y.format)},
			SplitLine: &opts.SplitLine{Show: opts.Bool(true), LineStyle: &opts.LineStyle{Color: "#e2e8f0"}},
		}),
		charts.WithTooltipOpts(opts.Tooltip{
			Show: opts.Bool(true), Trigger: "axis",
			Formatter: opts.FuncOpts("tip(" + c.x.format + "," + c.y.format + ")"),
		}),
		charts.WithLegendOpts(opts.Legend{Show: opts.Bool(true), Bottom: "2", ItemWidth: 28, Selected: c.hidden()}),
		charts.WithGridOpts(opts.Grid{Left: "12", Right: "28", Top: "36", Bottom: c.legendRoom(), ContainLabel: opts.Bool(true)}),
	)
	for _, one := range c.lines {
		l.AddSeries(one.name, one.data(), one.style()...)
	}
	return l
}

// Option is the chart in the words of ECharts. Where go-echarts marks the name of a function, the
// function is meant and not its name.
func (c *chart) Option() (template.JS, error) {
	l := c.build()
	l.Validate()
	text, err := json.Marshal(l.JSON())
	return template.JS(functions.Replace(string(text))), err //nolint:gosec // json.Marshal escapes what ends a script
}

var functions = strings.NewReplacer(`"__f__`, "", `__f__"`, "")

// legendRoom is the height of the legend and of the name of the axis above it.
func (c *chart) legendRoom() string {
	const perRow, rowHeight, name = 5, 20, 48
	return strconv.Itoa(name + rowHeight*((len(c.lines)+perRow-1)/perRow))
}

func (c *chart) hidden() map[string]bool {
	out := map[string]bool{}
	for name := range c.hiddenAtOnce {
		out[name] = false
	}
	return out
}

func (a axis) kind() string {
	if a.log {
		return "log"
	}
	return "value"
}

func (l *line) data() (out []opts.LineData) {
	for _, p := range l.points {
		out = append(out, opts.LineData{Value: p})
	}
	return out
}

func (l *line) style() []charts.SeriesOpts {
	solid := l.dash == "solid"
	width := float32(1.6)
	if solid {
		width = 2.4
	}
	return []charts.SeriesOpts{
		charts.WithLineChartOpts(opts.LineChart{ShowSymbol: opts.Bool(solid), Symbol: "circle", SymbolSize: 6}),
		charts.WithLineStyleOpts(opts.LineStyle{Color: l.colour, Width: width, Type: l.dash}),
		charts.WithItemStyleOpts(opts.ItemStyle{Color: l.colour}),
	}
}
