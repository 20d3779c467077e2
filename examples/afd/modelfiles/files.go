package modelfiles

import (
	"fmt"
	"os"
	"path/filepath"
)

// Files are the paths of the model's verified files.
type Files struct {
	Weights   string // model.safetensors
	Tokenizer string // tokenizer.json
	Config    string // config.json
}

// DefaultDir is the directory used where the user names none: stepvan/ and the
// model's name in the user's cache directory.
func DefaultDir() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("model files: no cache directory: %w; name a directory with --model", err)
	}
	return filepath.Join(cache, "stepvan", miniLM.name), nil
}

// Find verifies the files in dir ("" for DefaultDir) and fetches nothing. The
// error of a missing file is fs.ErrNotExist.
func Find(dir string) (Files, error) {
	dir, err := orDefault(dir)
	if err != nil {
		return Files{}, err
	}
	return miniLM.find(dir)
}

func orDefault(dir string) (string, error) {
	if dir != "" {
		return dir, nil
	}
	return DefaultDir()
}

func (m *release) find(dir string) (Files, error) {
	for _, f := range m.files {
		if err := f.verify(filepath.Join(dir, f.name)); err != nil {
			return Files{}, err
		}
	}
	return Files{
		Weights:   filepath.Join(dir, weightsName),
		Tokenizer: filepath.Join(dir, tokenizerName),
		Config:    filepath.Join(dir, configName),
	}, nil
}
