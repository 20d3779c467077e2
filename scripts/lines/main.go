// Lines counts lines of code in Go, of this tree or of a commit: lines with something on them that is not a comment.
//
//	go run ./scripts/lines [COMMIT]
//
// With a commit it counts both, and says by how much the tree has grown or shrunk. It counts tests, and what only helps
// tests, apart.
package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"go/scanner"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// count is what some files have.
type count struct{ lines, bytes int }

// counts has the count of the product, and the count of its tests.
type counts struct{ product, tests count }

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "lines:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	here, err := ofTree(".")
	if err != nil {
		return err
	}
	show("this tree", here)
	if len(args) == 0 {
		return nil
	}
	before, err := ofCommit(args[0])
	if err != nil {
		return err
	}
	show(args[0], before)
	change := float64(here.product.lines-before.product.lines) / float64(before.product.lines) * 100
	fmt.Printf("%-12s %+.1f %% lines of code\n", "change", change)
	return nil
}

func show(what string, c counts) {
	fmt.Printf("%-12s %6d lines of code, %4.1f bytes each; tests %6d\n", what, c.product.lines, float64(c.product.bytes)/float64(max(c.product.lines, 1)), c.tests.lines)
}

// add counts a file.
func (c *counts) add(path string, src []byte) {
	to := &c.product
	if strings.HasSuffix(path, "_test.go") {
		to = &c.tests
	}
	fset := token.NewFileSet()
	f := fset.AddFile(path, fset.Base(), len(src))
	var s scanner.Scanner
	s.Init(f, src, nil, 0)
	seen := map[int]bool{}
	for {
		pos, tok, text := s.Scan()
		if tok == token.EOF {
			break
		}
		if tok == token.SEMICOLON && text == "\n" {
			continue
		}
		first := f.Line(pos)
		for n := range strings.Count(text, "\n") + 1 {
			seen[first+n] = true
		}
	}
	lines := bytes.Split(src, []byte("\n"))
	for n := range seen {
		to.lines++
		to.bytes += len(bytes.TrimSpace(lines[n-1]))
	}
}

func ofTree(root string) (c counts, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && strings.HasPrefix(d.Name(), "."):
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".go":
			return nil
		}
		src, err := os.ReadFile(path)
		c.add(path, src)
		return err
	})
	return c, err
}

func ofCommit(commit string) (c counts, err error) {
	out, err := exec.Command("git", "archive", "--format=tar", commit).Output()
	if err != nil {
		return c, fmt.Errorf("git archive %s: %w", commit, err)
	}
	for r := tar.NewReader(bytes.NewReader(out)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return c, nil
		}
		if err != nil {
			return c, err
		}
		if filepath.Ext(h.Name) != ".go" {
			continue
		}
		src, err := io.ReadAll(r)
		if err != nil {
			return c, err
		}
		c.add(h.Name, src)
	}
}
