package layering

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
)

// pkg is what `go list -json` says of a package, and its sources.
type pkg struct {
	ImportPath, Name, Dir string

	Deps                              []string // at any distance
	GoFiles, CgoFiles, IgnoredGoFiles []string

	sources []source // without tests; files of other platforms and tags included
}

// list asks the go command for all packages of the module in dir and reads their sources.
func list(dir string) ([]pkg, error) {
	cmd := exec.Command("go", "list", "-pgo=off", "-e", "-deps", "-json=ImportPath,Name,Dir,Deps,GoFiles,CgoFiles,IgnoredGoFiles", "./...")
	cmd.Dir = dir
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w: %s", err, said.String())
	}
	all, err := decode(out)
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("go list: no package of %s in %s: %s", module, dir, said.String())
	}
	return all, err
}

func decode(out []byte) ([]pkg, error) {
	var all []pkg
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		if _, ours := local(p.ImportPath); !ours {
			continue
		}
		if err := p.read(); err != nil {
			return nil, err
		}
		all = append(all, p)
	}
}

func (p *pkg) read() error {
	for _, names := range [][]string{p.GoFiles, p.CgoFiles, p.IgnoredGoFiles} {
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			s, err := parse(filepath.Join(p.Dir, name), nil)
			if err != nil {
				return err
			}
			p.sources = append(p.sources, s)
		}
	}
	return nil
}
