package config

import (
	"fmt"
	"strings"
)

const markdownHead = `# Settings

<!-- Generated from the tags of config.Settings: go generate ./config -->

A node reads its settings from the environment. ` + "`stepvan env`" + ` prints them with their values and where
each came from, ` + "`stepvan doctor`" + ` says what would go wrong with them. All mistakes are reported at once.

- Sizes take B, KiB, MiB, GiB or TiB; times are Go durations (500ms, 1.5s, 10m) or bare numbers; a variable
  that is empty counts as not set.
- Two names of one setting with different values are an error. Only ` + "`STEPVAN_VAN`" + ` wins over its other names;
  those are ` + "`ibverbs`, `verbs` or `1` for rdma, `zmq` or `0` for tcp. `DMLC_ENABLE_RDMA=0` beside a `DMLC_PS_VAN_TYPE`\n  that is not RDMA does not contradict it" + `.
- *Everywhere* marks the settings on which all nodes of a cluster must agree; the scheduler refuses a node that
  differs and names the setting.
- Names with the prefixes ` + "`STEPVAN_`, `STEPMESH_`, `DMLC_` and `PS_`" + ` that are not listed are ignored with a
  warning that gives the nearest known name.
- ` + "`BYTEPS_*`, `STEPAF_*`, `DMLC_ENABLE_UCX` and `DMLC_USE_KUBERNETES`" + ` have no meaning here and are ignored with
  one line of warning.
- ` + "`STEPAF_GPU`, `STEPMESH_CONNECTOR_DEBUG` and `STEPMESH_SCHEDULER_STARTED`" + ` belong to programs written for
  StepMesh, which read them themselves. There is no warning of them.
`

// Markdown renders the table of settings as docs/settings.md.
func Markdown() string {
	var b strings.Builder
	b.WriteString(markdownHead)
	for i := range table {
		f := &table[i]
		if i == 0 || f.group != table[i-1].group {
			fmt.Fprintf(&b, "\n## %s\n\n| variable | accepts | default | meaning |\n|---|---|---|---|\n", f.group)
		}
		b.WriteString(f.markdown())
	}
	return b.String()
}

func (f *field) markdown() string {
	names := "`" + f.name + "`"
	for _, a := range f.aliases {
		names += ", `" + a + "`"
	}
	for _, m := range f.misspelt {
		names += ", `" + m + "` (misspelt, with a warning)"
	}
	doc := f.doc
	if f.shared {
		doc += " *Everywhere.*"
	}
	return fmt.Sprintf("| %s | %s | %s | %s |\n", names, f.accepts(), f.defaultDoc(), doc)
}

func (f *field) defaultDoc() string {
	switch {
	case f.required:
		return "must be set"
	case f.then != "" && strings.Contains(f.then, "("+f.def+")"), f.def == "":
		return f.then
	case f.then != "":
		return "`" + f.def + "`; " + f.then
	}
	return "`" + f.def + "`"
}
