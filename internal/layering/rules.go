package layering

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// check applies all rules and returns what breaks them, one line each.
func check(packages []pkg) []string {
	c := new(checker)
	for i := range packages {
		path, ok := local(packages[i].ImportPath)
		if !ok {
			continue
		}
		c.pkg(path, &packages[i])
	}
	slices.Sort(c.found)
	return slices.Compact(c.found)
}

type checker struct{ found []string }

func (c *checker) report(format string, args ...any) {
	c.found = append(c.found, fmt.Sprintf(format, args...))
}

func (c *checker) pkg(path string, p *pkg) {
	home, ok := rowOf(path)
	if !ok {
		c.report("%q has no row: add it to the table in internal/layering/rows.go", path)
		return
	}
	c.doc(path, p)
	if home.tests {
		return
	}
	c.depends(path, home, p)
	for i := range p.sources {
		c.source(path, home, &p.sources[i])
	}
}

// doc demands a doc.go of every package but a program of one file, whose file is its own.
func (c *checker) doc(path string, p *pkg) {
	names := make([]string, 0, len(p.sources))
	for i := range p.sources {
		names = append(names, p.sources[i].name)
	}
	program := p.Name == "main" && len(names) == 1
	if len(names) > 0 && !program && !slices.Contains(names, "doc.go") {
		c.report("%s has no doc.go: tell its purpose, threads and ownership there", path)
	}
}

func (c *checker) depends(path string, home row, p *pkg) {
	for _, rule := range unreachables {
		if !slices.Contains(rule.from, home.path) {
			continue
		}
		for _, d := range p.Deps {
			if target, ok := localRow(d); ok && slices.Contains(rule.to, target.path) {
				c.report("%s depends on %s: %s", path, target.path, rule.why)
			}
		}
	}
}

func (c *checker) source(path string, home row, s *source) {
	where := path + "/" + s.name
	for _, imported := range s.imports {
		if target, ok := localRow(imported); ok {
			c.imports(where, home, target)
		}
	}
	for _, o := range owners {
		for _, use := range s.uses {
			if slices.Contains(o.names, use) && !slices.Contains(o.may, home.path) {
				c.report("%s uses %s, which only %s may: %s", where, use, strings.Join(o.may, ", "), o.why)
			}
		}
	}
	if s.init {
		c.report("%s has an init function: hand things in through constructors instead", where)
	}
}

func (c *checker) imports(where string, from, to row) {
	beside := slices.Contains(from.beside, to.path)
	switch {
	case from.path == to.path:
	case to.tests:
		c.report("%s imports %s, which is for tests only", where, to.path)
	case to.only != nil && !slices.Contains(to.only, from.path):
		c.report("%s imports %s, which is for %s only", where, to.path, strings.Join(to.only, ", "))
	case from.sees != nil && !slices.Contains(from.sees, to.path):
		c.report("%s imports %s, but %s may import only %s", where, cmp.Or(to.path, "stepvan"), from.path, strings.Join(names(from.sees), ", "))
	case slices.Contains(from.never, to.path):
		c.report("%s imports %s, which %s must not see", where, to.path, from.path)
	case to.level >= from.level && !beside:
		c.report("%s imports %s: imports go downward only (level %d to %d)", where, to.path, from.level, to.level)
	}
}

// names writes the root package, whose path is empty, as the module's last element.
func names(paths []string) (out []string) {
	for _, p := range paths {
		out = append(out, cmp.Or(p, "stepvan"))
	}
	return out
}

func localRow(importPath string) (row, bool) {
	path, ok := local(importPath)
	if !ok {
		return row{}, false
	}
	return rowOf(path)
}
