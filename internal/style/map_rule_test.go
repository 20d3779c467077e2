package style

import (
	"fmt"
	"go/ast"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// names are what the source declares: "Session", "Session.Send", "link.Session", "link.Session.Send".
type names map[string]bool

// declared collects the names of all files: types, functions, methods, fields, constants and variables.
func declared(files []file) names {
	n := names{}
	for i := range files {
		f := &files[i]
		if f.syntax == nil {
			continue
		}
		pkg := f.syntax.Name.Name
		for _, d := range f.syntax.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				owner := ""
				if d.Recv != nil {
					owner = path.Ext(typeName(f, d.Recv.List[0].Type))
					owner = strings.TrimPrefix(owner, ".") + "."
				}
				n.add(pkg, owner+d.Name.Name)
				n[d.Name.Name] = true
			case *ast.GenDecl:
				for _, s := range d.Specs {
					n.spec(pkg, s)
				}
			}
		}
	}
	return n
}

func (n names) add(pkg, name string) { n[name], n[pkg+"."+name] = true, true }

func (n names) spec(pkg string, s ast.Spec) {
	switch s := s.(type) {
	case *ast.ValueSpec:
		for _, id := range s.Names {
			n.add(pkg, id.Name)
		}
	case *ast.TypeSpec:
		n.add(pkg, s.Name.Name)
		var list *ast.FieldList
		switch t := s.Type.(type) {
		case *ast.StructType:
			list = t.Fields
		case *ast.InterfaceType:
			list = t.Methods
		default:
			return
		}
		for _, f := range list.List {
			for _, id := range f.Names {
				n.add(pkg, s.Name.Name+"."+id.Name)
				n[id.Name] = true
			}
		}
	}
}

var (
	codeSpan  = regexp.MustCompile("`([^`\n]+)`")
	pointer   = regexp.MustCompile(`\(\*(\w+)\)`)
	goName    = regexp.MustCompile(`^[A-Za-z]\w*(\.[A-Za-z]\w*)*$`)
	capital   = regexp.MustCompile(`[A-Z]`)
	setting   = regexp.MustCompile(`^(DMLC|PS|STEPVAN|STEPMESH|STEPAF)_[A-Z_0-9]+`)
	fileName  = regexp.MustCompile(`^[\w.-]+\.(go|md|sh|py|c|h|cc|pyi|golden|txt|toml|yml)$`)
	makeRule  = regexp.MustCompile(`^make ([a-z][a-z-]*)`)
	arguments = regexp.MustCompile(`\(.*\)$`)
)

// lost returns what a document names in code spans and does not exist: paths, files, names in Go, settings, targets
// of make.
func lost(root, document string, files []file) (complaints []string) {
	known := declared(files)
	settings, _ := os.ReadFile(filepath.Join(root, "docs/settings.md"))
	makefile, _ := os.ReadFile(filepath.Join(root, "Makefile"))
	base := map[string]bool{}
	for i := range files {
		base[path.Base(files[i].path)] = true
	}
	for i, line := range prosaic(document) {
		for _, m := range codeSpan.FindAllStringSubmatch(line, -1) {
			span := m[1]
			wrong := ""
			switch {
			case makeRule.MatchString(span):
				if !strings.Contains(string(makefile), "\n"+makeRule.FindStringSubmatch(span)[1]+":") {
					wrong = "no target of the Makefile"
				}
			case setting.MatchString(span):
				if name := setting.FindString(span); !strings.Contains(string(settings), name) {
					wrong = "no setting of docs/settings.md"
				}
			case strings.ContainsAny(span, " $<>*={}~") && !pointer.MatchString(span):
			case fileName.MatchString(span):
				if !base[span] {
					wrong = "no file of that name"
				}
			case strings.Contains(span, "/") && !strings.HasPrefix(span, "/") && !strings.Contains(span, "://"):
				if !exists(root, span, known) {
					wrong = "no such path"
				}
			default:
				name := arguments.ReplaceAllString(pointer.ReplaceAllString(span, "$1"), "")
				if goName.MatchString(name) && capital.MatchString(name) && !known[name] {
					wrong = "no such name in Go"
				}
			}
			if wrong != "" {
				complaints = append(complaints, fmt.Sprintf("line %d: `%s`: %s", i+1, span, wrong))
			}
		}
	}
	return complaints
}

// exists reports whether a path, or a name behind one ("internal/link.Session"), is there.
func exists(root, span string, known names) bool {
	if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(strings.TrimSuffix(span, "/")))); err == nil {
		return true
	}
	name := pointer.ReplaceAllString(path.Base(span), "$1")
	return strings.Contains(name, ".") && known[arguments.ReplaceAllString(name, "")]
}

// prosaic returns the lines of a document in Markdown with those of code blocks empty.
func prosaic(document string) []string {
	lines := strings.Split(document, "\n")
	fenced := false
	for i, line := range lines {
		fence := strings.HasPrefix(strings.TrimSpace(line), "```")
		if fence {
			fenced = !fenced
		}
		if fenced || fence {
			lines[i] = ""
		}
	}
	return lines
}
