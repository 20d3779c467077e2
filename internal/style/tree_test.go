package style

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// file is a file of the tree.
type file struct {
	path string // below the root, with slashes
	text string

	// Of a file in Go.
	fset   *token.FileSet
	syntax *ast.File
}

// ignored are folders that hold what was built, installed or given.
var ignored = []string{".git", ".cache", ".ci", "bin", "build", "dist", "__pycache__", "node_modules", "testdata/fuzz"}

// extensions end the names of files that people read.
var extensions = []string{".go", ".md", ".py", ".pyi", ".c", ".h", ".cc", ".sh", ".golden"}

// read reads the files under root that people read.
func read(root string) (files []file, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below, _ := filepath.Rel(root, path)
		below = filepath.ToSlash(below)
		if d.IsDir() {
			if slices.Contains(ignored, d.Name()) || slices.ContainsFunc(ignored, func(i string) bool { return strings.HasSuffix(below, i) }) {
				return filepath.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() || !slices.Contains(extensions, filepath.Ext(path)) && d.Name() != "Makefile" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		f, err := newFile(below, string(text))
		files = append(files, f)
		return err
	})
	return files, err
}

// newFile parses what is written in Go.
func newFile(path, text string) (file, error) {
	f := file{path: path, text: text}
	if filepath.Ext(path) != ".go" {
		return f, nil
	}
	f.fset = token.NewFileSet()
	var err error
	f.syntax, err = parser.ParseFile(f.fset, path, text, parser.ParseComments|parser.SkipObjectResolution)
	return f, err
}

// test reports whether f is the source of a test.
func (f *file) test() bool { return strings.HasSuffix(f.path, "_test.go") }

// stub reports whether f stands for files that need cgo: its types and methods are theirs.
func (f *file) stub() bool { return strings.HasPrefix(f.text, "//go:build !cgo\n") }

// dir is the folder of f.
func (f *file) dir() string {
	if i := strings.LastIndexByte(f.path, '/'); i >= 0 {
		return f.path[:i]
	}
	return "."
}
