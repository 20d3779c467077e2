package config

import (
	"fmt"
	"strings"
)

const markdownHead = `# Settings

<!-- Generated from the tags of config.Settings: go generate ./config -->

A node reads its settings from the environment. ` + "`stepvan env`" + ` prints each with its value and says where
the value came from. ` + "`stepvan doctor`" + ` says what would go wrong with them. A node reports all mistakes at once.

- Sizes take B, KiB, MiB, GiB or TiB. Times are Go durations (500ms, 1.5s, 10m) or bare numbers. An empty
  variable counts as not set.
- Two names of one setting with different values are an error. Only ` + "`STEPVAN_VAN`" + ` wins over its other names.
  Those are ` + "`ibverbs`, `verbs` or `1` for shm+rdma, and `zmq` or `0` for tcp. `DMLC_ENABLE_RDMA=0` beside a\n  `DMLC_PS_VAN_TYPE` that is not RDMA is not a contradiction" + `.
- *Everywhere* marks the settings on which all nodes of a cluster must agree. The scheduler refuses a node that
  differs, and names the setting.
- A node ignores other names with the prefixes ` + "`STEPVAN_`, `STEPMESH_`, `DMLC_` and `PS_`" + `. A warning gives the
  nearest name that it knows.
- ` + "`BYTEPS_*`, `STEPAF_*`, `DMLC_ENABLE_UCX` and `DMLC_USE_KUBERNETES`" + ` have no meaning here. A node ignores
  them with one line of warning.
- ` + "`STEPAF_GPU`, `STEPMESH_CONNECTOR_DEBUG` and `STEPMESH_SCHEDULER_STARTED`" + ` belong to programs written for
  StepMesh, which read them themselves. A node ignores them without a warning.
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
	case f.required && f.then != "":
		return "must be set; " + f.then
	case f.required:
		return "must be set"
	case f.then != "" && strings.Contains(f.then, "("+f.def+")"), f.def == "":
		return f.then
	case f.then != "":
		return "`" + f.def + "`; " + f.then
	}
	return "`" + f.def + "`"
}
