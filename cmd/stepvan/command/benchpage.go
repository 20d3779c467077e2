package command

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/stepvan/stepvan/bench/page"
	"github.com/stepvan/stepvan/internal/errs"
)

// pageFile is a page that is written to a temporary file and then renamed, so that a run that fails
// leaves the old page. A nil *pageFile means no page.
type pageFile struct {
	path string // where publish puts it
	file *os.File
}

// createPage creates the temporary file for the page at path; "" means no page. A measurement may take
// long, so createPage is called before it and refuses a wrong path at once. discard removes the file.
func createPage(path string) (*pageFile, error) {
	if path == "" {
		return nil, nil
	}
	if there, err := os.Stat(path); err == nil && !there.Mode().IsRegular() {
		return nil, errs.Invalid("--html: %s exists and is not a regular file: write the name of a file", path)
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		var cause *os.PathError
		if errors.As(err, &cause) {
			err = cause.Err // its path is the temporary one
		}
		return nil, fmt.Errorf("--html: %s: %w: name a file in a folder that exists and can be written to", path, err)
	}
	return &pageFile{path: path, file: f}, nil
}

// publish writes the page and renames it.
func (p *pageFile) publish(c *page.Content) error {
	err := page.Write(p.file, c)
	if err = errors.Join(err, p.file.Chmod(0o644), p.file.Close()); err == nil {
		err = os.Rename(p.file.Name(), p.path)
	}
	if err != nil {
		return fmt.Errorf("--html: %w", err)
	}
	return nil
}

// discard removes the temporary file. After publish nothing is left to remove.
func (p *pageFile) discard() {
	if p != nil {
		_ = p.file.Close()
		_ = os.Remove(p.file.Name())
	}
}
