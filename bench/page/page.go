package page

import (
	"bytes"
	"compress/gzip"
	_ "embed" // files of the page
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/stepvan/stepvan/bench"
)

// Content is what the page shows.
type Content struct {
	Reports     []*bench.Report
	GoalResults []bench.GoalResult // none: no goals
	Made        time.Time
	Version     string // of stepvan
}

//go:embed page.html
var pageText string

//go:embed page.css
var styleText string

//go:embed page.js
var scriptText string

//go:embed echarts/echarts.common.min.js.gz
var echarts []byte

// signs replaces texts by signs that a terminal may not have.
var signs = strings.NewReplacer("<=", "≤", ">=", "≥", " x", " ×", " us", " µs", "+-", "±")

// classes of the columns whose cells are not just numbers.
var classes = map[string]string{"workload": "", "van": "", "how": "", "limit": "soft", "p50": "n strong", "ratio": "n strong", "+-": "n soft"}

func class(column string) string {
	if c, ok := classes[column]; ok {
		return c
	}
	return "n"
}

// Write writes the page.
func Write(w io.Writer, c *Content) error {
	t, err := template.New("page").Funcs(template.FuncMap{"signs": signs.Replace, "class": class}).Parse(pageText)
	if err != nil {
		return err
	}
	library, err := unpack(echarts)
	if err != nil {
		return fmt.Errorf("the page's library: %w", err)
	}
	v := newView(c)
	v.Style, v.Script, v.Library = template.CSS(styleText), template.JS(scriptText), template.JS(library)
	return t.Execute(w, v)
}

func unpack(packed []byte) (string, error) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(r)
	return string(text), err
}

// view is what the template reads.
type view struct {
	*Content
	Style    template.CSS
	Library  template.JS
	Script   template.JS
	Machine  string
	Met      int
	Columns  []bench.Column
	Sections []section
}

// section is a heading with charts below it.
type section struct {
	Title, Text string
	Charts      []*chart
}

func newView(c *Content) *view {
	v := &view{Content: c, Columns: bench.Columns(c.Reports), Sections: sections(c.Reports)}
	if len(c.Reports) > 0 {
		v.Machine = c.Reports[0].Details.Machine
	}
	for i := range c.GoalResults {
		if c.GoalResults[i].Met() {
			v.Met++
		}
	}
	return v
}

// sections makes one section for each sweep of sizes or of computing times, and one for all
// distributions.
func sections(reports []*bench.Report) (out []section) {
	out = overheadSections(reports)
	var shapes []*bench.Report
	for _, f := range families(reports) {
		swept, others := f.split()
		if len(swept.reports) > 0 {
			out = append(out, swept.sweep())
		}
		shapes = append(shapes, others...)
	}
	all := section{
		Title: "Distributions",
		Text: "How many of the exchanges took no longer than what the vertical axis says: solid what stepvan did, dashed its limit in the same rounds. " +
			"The further to the right, the rarer: what happens there on a busy machine is the scheduler's doing.",
	}
	for _, f := range families(shapes) {
		for _, size := range f.sizes() {
			all.Charts = append(all.Charts, f.distribution(size))
		}
	}
	if all.Charts = slices.DeleteFunc(all.Charts, (*chart).empty); len(all.Charts) > 0 {
		out = append(out, all)
	}
	return out
}
