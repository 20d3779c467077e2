package style

import (
	"fmt"
	"go/ast"
	"slices"
	"strconv"
	"strings"
)

// What a type may have. Fields of embedded structs count, and so do promoted methods, and functions of the package that
// take the type as their first argument.
const (
	maxFields  = 25
	maxMethods = 30
)

const module = "github.com/stepvan/stepvan"

// size is how large a type is.
type size struct{ fields, methods int }

func (s size) over() bool { return s.fields > maxFields || s.methods > maxMethods }

// exempt are types that are large by their nature: the table of settings, and the operations of a node.
var exempt = []string{"config.Settings", "ps.Node"}

// shape is what the source says of a type.
type shape struct {
	size
	embeds []string // names as in sizes
}

// sizes measures the types of all files but tests, by folder and name: "internal/link.Session".
func sizes(files []file) map[string]size {
	shapes := map[string]*shape{}
	of := func(name string) *shape {
		if shapes[name] == nil {
			shapes[name] = new(shape)
		}
		return shapes[name]
	}
	declared := map[string]bool{}
	for i := range files {
		f := &files[i]
		if f.syntax == nil || f.test() || f.stub() {
			continue
		}
		for _, d := range f.syntax.Decls {
			switch d := d.(type) {
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if t, ok := spec.(*ast.TypeSpec); ok && t.Assign == 0 {
						name := f.dir() + "." + t.Name.Name
						declared[name] = true
						of(name).declare(f, t)
					}
				}
			case *ast.FuncDecl:
				if name := subject(f, d); name != "" {
					of(name).methods++
				}
			}
		}
	}
	found := map[string]size{}
	for name := range shapes {
		if declared[name] {
			found[name] = total(shapes, name, nil)
		}
	}
	return found
}

// declare counts the fields of a struct, and the methods of an interface.
func (s *shape) declare(f *file, t *ast.TypeSpec) {
	var list *ast.FieldList
	fields := true
	switch u := t.Type.(type) {
	case *ast.StructType:
		list = u.Fields
	case *ast.InterfaceType:
		list, fields = u.Methods, false
	default:
		return
	}
	for _, field := range list.List {
		n := max(len(field.Names), 1)
		if fields {
			s.fields += n
		} else if len(field.Names) > 0 {
			s.methods += n
		}
		if len(field.Names) == 0 {
			s.embeds = append(s.embeds, typeName(f, field.Type))
		}
	}
}

// total adds what is embedded.
func total(shapes map[string]*shape, name string, seen []string) size {
	s := shapes[name]
	if s == nil || slices.Contains(seen, name) {
		return size{}
	}
	sum := s.size
	for _, e := range s.embeds {
		more := total(shapes, e, append(seen, name))
		sum.fields += more.fields
		sum.methods += more.methods
	}
	return sum
}

// subject is the type that a function is a method of, by its receiver or its first argument; "" for none.
func subject(f *file, d *ast.FuncDecl) string {
	if d.Recv != nil {
		return typeName(f, d.Recv.List[0].Type)
	}
	if d.Type.Params == nil || len(d.Type.Params.List) == 0 {
		return ""
	}
	name := typeName(f, d.Type.Params.List[0].Type)
	if !strings.HasPrefix(name, f.dir()+".") {
		return ""
	}
	return name
}

// typeName is the name of the type of an expression, as in sizes; "" for what has none in this module.
func typeName(f *file, x ast.Expr) string {
	switch x := x.(type) {
	case *ast.StarExpr:
		return typeName(f, x.X)
	case *ast.IndexExpr:
		return typeName(f, x.X)
	case *ast.IndexListExpr:
		return typeName(f, x.X)
	case *ast.Ident:
		return f.dir() + "." + x.Name
	case *ast.SelectorExpr:
		p, ok := x.X.(*ast.Ident)
		if !ok {
			return ""
		}
		for _, i := range f.syntax.Imports {
			path, _ := strconv.Unquote(i.Path.Value)
			below, ours := strings.CutPrefix(path, module+"/")
			if ours && (i.Name != nil && i.Name.Name == p.Name || strings.HasSuffix("/"+below, "/"+p.Name)) {
				return below + "." + x.Sel.Name
			}
		}
	}
	return ""
}

// tooLarge compares what is there with the ceilings of what is known to be too large. A ceiling may only fall.
func tooLarge(found map[string]size, ceilings map[string]size) (complaints []string) {
	say := func(format string, args ...any) { complaints = append(complaints, fmt.Sprintf(format, args...)) }
	for name, s := range found {
		c, known := ceilings[name]
		switch {
		case slices.Contains(exempt, name):
		case !known && s.over():
			say("%s has %d fields and %d methods (want at most %d and %d): split it", name, s.fields, s.methods, maxFields, maxMethods)
		case known && (s.fields > c.fields || s.methods > c.methods):
			say("%s grew to %d fields and %d methods (got a ceiling of %d and %d): split it", name, s.fields, s.methods, c.fields, c.methods)
		case known && s != c:
			say("%s has %d fields and %d methods (got a ceiling of %d and %d): lower the ceiling", name, s.fields, s.methods, c.fields, c.methods)
		case known && !s.over():
			say("%s is within the limits: delete its ceiling", name)
		}
	}
	for name := range ceilings {
		if _, ok := found[name]; !ok {
			say("%s does not exist: delete its ceiling", name)
		}
	}
	slices.Sort(complaints)
	return complaints
}
