package verbs

import (
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Both builds have the same types, functions and methods, so that users of the package need no build tags.
func TestBothBuildsHaveTheSameFunctions(t *testing.T) {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	with, without := map[string]bool{}, map[string]bool{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		require.NoError(t, err)
		for _, built := range []struct {
			cgo   bool
			names map[string]bool
		}{{true, with}, {false, without}} {
			if inBuild(f, built.cgo) {
				declare(f, built.names)
			}
		}
	}
	require.Contains(t, with, "func (*QP) PostSend(*SendChain) (int, error)")
	require.Equal(t, with, without)
}

func inBuild(f *ast.File, cgo bool) bool {
	for _, g := range f.Comments {
		for _, c := range g.List {
			if x, err := constraint.Parse(c.Text); err == nil && g.Pos() < f.Package {
				return x.Eval(func(tag string) bool { return tag == "cgo" && cgo })
			}
		}
	}
	return true
}

// declare adds the exported names of a file, without the names of arguments.
func declare(f *ast.File, names map[string]bool) {
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if receiver := bare(d.Recv); d.Name.IsExported() && (receiver == "" || ast.IsExported(strings.Trim(receiver, "(*)"))) {
				names["func "+receiver+" "+d.Name.Name+bare(d.Type.Params)+results(d.Type.Results)] = true
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				if s, ok := s.(*ast.TypeSpec); ok && s.Name.IsExported() {
					names["type "+s.Name.Name] = true
				}
			}
		}
	}
}

func bare(list *ast.FieldList) string {
	if list == nil {
		return ""
	}
	return "(" + typesOf(list) + ")"
}

func results(list *ast.FieldList) string {
	switch {
	case list == nil:
		return ""
	case list.NumFields() == 1:
		return " " + typesOf(list)
	}
	return " (" + typesOf(list) + ")"
}

func typesOf(list *ast.FieldList) string {
	var all []string
	for _, f := range list.List {
		for range max(1, len(f.Names)) {
			all = append(all, types.ExprString(f.Type))
		}
	}
	return strings.Join(all, ", ")
}
