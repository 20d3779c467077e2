package layering

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"slices"
	"strconv"
)

// source is what the rules need of a file.
type source struct {
	name    string
	imports []string
	uses    []string // names of imported packages, as in owner.names
	init    bool
}

// parse reads a file. src as in parser.ParseFile: nil reads the file at path.
func parse(file string, src any) (source, error) {
	f, err := parser.ParseFile(token.NewFileSet(), file, src, parser.SkipObjectResolution)
	if err != nil {
		return source{}, err
	}
	s := source{name: filepath.Base(file)}
	names := map[string]string{}
	for _, i := range f.Imports {
		imported, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			return source{}, err
		}
		s.imports = append(s.imports, imported)
		names[nameOf(i, imported)] = imported
	}
	s.init = hasInit(f)
	s.uses = usesOf(f, names)
	return s, nil
}

// nameOf guesses a package's name from its path, which holds for all that owners name.
func nameOf(i *ast.ImportSpec, imported string) string {
	if i.Name != nil {
		return i.Name.Name
	}
	return path.Base(imported)
}

func hasInit(f *ast.File) bool {
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
			return true
		}
	}
	return false
}

func usesOf(f *ast.File, names map[string]string) (uses []string) {
	if names["C"] == "C" {
		uses = append(uses, "C")
	}
	ast.Inspect(f, func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := s.X.(*ast.Ident); ok && names[x.Name] != "" {
			uses = append(uses, names[x.Name]+"."+s.Sel.Name)
		}
		return true
	})
	slices.Sort(uses)
	return slices.Compact(uses)
}
