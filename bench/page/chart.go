package page

import (
	"encoding/json"
	"html/template"
	"strconv"
	"strings"
)

// chart is lines over an axis of numbers. The functions of its axes are in page.js.
type chart struct {
	ID           string // set when the page has all charts
	Title, Note  string
	x, y         axis
	lines        []line
	hiddenAtOnce map[string]bool // names of lines that appear after a click on the legend
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

// object is a part of a chart's option.
type object map[string]any

// function marks the name of a function in page.js, which JSON can only write as a text.
func function(name string) string { return "@function:" + name + "@" }

var functions = strings.NewReplacer(`"@function:`, "", `@"`, "")

// Option is the chart in the words of ECharts.
func (c *chart) Option() (template.JS, error) {
	var series []object
	for i := range c.lines {
		series = append(series, c.lines[i].option())
	}
	text, err := json.Marshal(object{
		"animation": false,
		"grid":      object{"left": "12", "right": "28", "top": "36", "bottom": c.legendRoom(), "containLabel": true},
		"legend":    object{"show": true, "bottom": "2", "itemWidth": 28, "selected": c.hidden()},
		"tooltip":   object{"show": true, "trigger": "axis", "formatter": function("tip(" + c.x.format + "," + c.y.format + ")")},
		"xAxis": []object{{
			"type": "value", "name": c.x.name, "nameLocation": "middle", "nameGap": 30,
			"min": "dataMin", "max": "dataMax", "minInterval": c.x.step, "maxInterval": c.x.step,
			"axisLabel": object{"formatter": function(c.x.format), "hideOverlap": true},
			"axisTick":  object{"show": true},
			"splitLine": gridLines("#eef2f7"),
		}},
		"yAxis": []object{{
			"type": c.y.kind(), "name": c.y.name, "nameLocation": "end", "nameGap": 14,
			"axisLabel": object{"formatter": function(c.y.format)},
			"splitLine": gridLines("#e2e8f0"),
		}},
		"series": series,
	})
	return template.JS(functions.Replace(string(text))), err //nolint:gosec // json.Marshal escapes what ends a script
}

func gridLines(colour string) object {
	return object{"show": true, "lineStyle": object{"color": colour}}
}

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

func (l *line) option() object {
	data := make([]object, 0, len(l.points))
	for _, p := range l.points {
		data = append(data, object{"value": p})
	}
	solid, width := l.dash == "solid", 1.6
	if solid {
		width = 2.4
	}
	return object{
		"name": l.name, "type": "line", "data": data, "animation": false,
		"showSymbol": solid, "symbol": "circle", "symbolSize": 6,
		"lineStyle": object{"color": l.colour, "width": width, "type": l.dash},
		"itemStyle": object{"color": l.colour},
	}
}
