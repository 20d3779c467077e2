package command

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/stepvan/stepvan/bench/page"
	"github.com/stepvan/stepvan/internal/errs"
)

// pageFile is a page that is written beside its place and then put there, so that a run that fails
// leaves the last one. A nil *pageFile is the page that nobody wants.
type pageFile struct {
	path string // its place
	file *os.File
}

// createPage begins the page at path; "" is none. It is called before a measurement, which may take
// long, so that a path where no page can be is told at once. discard ends what it began.
func createPage(path string) (*pageFile, error) {
	if path == "" {
		return nil, nil
	}
	if there, err := os.Stat(path); err == nil && !there.Mode().IsRegular() {
		return nil, errs.Invalid("--html %s is there and is no file: write the name of a file", path)
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return nil, fmt.Errorf("--html: %w", err)
	}
	return &pageFile{path: path, file: f}, nil
}

// publish writes the page and puts it in its place.
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

// discard removes what is not in its place; that nothing is left to remove is no error.
func (p *pageFile) discard() {
	if p != nil {
		_ = p.file.Close()
		_ = os.Remove(p.file.Name())
	}
}
