package model

import (
	"encoding/json"
	"fmt"
	"os"
)

// columnUnit is the granularity in which the intermediate dimension is cut: 16
// floats, so that rows of a slice stay aligned to 64 bytes.
const columnUnit = 16

// Config is the model's config.json, as far as the encoder needs it.
type Config struct {
	Layers       int     `json:"num_hidden_layers"`
	Hidden       int     `json:"hidden_size"`
	Heads        int     `json:"num_attention_heads"`
	Intermediate int     `json:"intermediate_size"`
	Vocabulary   int     `json:"vocab_size"`
	Positions    int     `json:"max_position_embeddings"`
	Types        int     `json:"type_vocab_size"`
	Epsilon      float64 `json:"layer_norm_eps"`
	Activation   string  `json:"hidden_act"`
	Position     string  `json:"position_embedding_type"`
}

// OpenConfig reads and checks the config.json at path.
func OpenConfig(path string) (Config, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("model: %w", err)
	}
	c, err := ParseConfig(raw)
	if err != nil {
		return Config{}, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// ParseConfig reads and checks the text of a config.json.
func ParseConfig(raw []byte) (Config, error) {
	var c Config
	if err := json.Unmarshal(raw, &c); err != nil {
		return Config{}, fmt.Errorf("model: not a config.json: %w", err)
	}
	return c, c.Check()
}

// maxDimension keeps products of two dimensions far from overflow.
const maxDimension = 1 << 20

// Check says which value this package cannot compute with.
func (c Config) Check() error {
	for _, v := range []struct {
		name       string
		value, max int
	}{
		{"num_hidden_layers", c.Layers, 256},
		{"hidden_size", c.Hidden, maxDimension},
		{"num_attention_heads", c.Heads, maxDimension},
		{"intermediate_size", c.Intermediate, maxDimension},
		{"vocab_size", c.Vocabulary, maxDimension},
		{"max_position_embeddings", c.Positions, maxDimension},
		{"type_vocab_size", c.Types, maxDimension},
	} {
		if v.value < 1 || v.value > v.max {
			return fmt.Errorf("model: %s is %d; it must be from 1 to %d", v.name, v.value, v.max)
		}
	}
	switch {
	case c.Hidden%c.Heads != 0 || c.headDim()%4 != 0 || c.Hidden%columnUnit != 0:
		return fmt.Errorf("model: hidden_size %d must be a multiple of %d and its %d heads multiples of 4 wide", c.Hidden, columnUnit, c.Heads)
	case c.Intermediate%columnUnit != 0:
		return fmt.Errorf("model: intermediate_size %d must be a multiple of %d", c.Intermediate, columnUnit)
	case !(c.Epsilon > 0):
		return fmt.Errorf("model: layer_norm_eps %g must be positive", c.Epsilon)
	case c.Activation != "gelu":
		return fmt.Errorf("model: hidden_act is %q; only gelu is computed", c.Activation)
	case c.Position != "" && c.Position != "absolute":
		return fmt.Errorf("model: position_embedding_type is %q; only absolute is computed", c.Position)
	}
	return nil
}

func (c Config) headDim() int { return c.Hidden / c.Heads }

// SliceBounds returns the columns [lo, hi) of the intermediate dimension that slice number part
// computes. It cuts in units of 16, as evenly as possible.
func (c Config) SliceBounds(part, parts int) (lo, hi int, err error) {
	units := c.Intermediate / columnUnit
	if parts < 1 || parts > units || part < 0 || part >= parts {
		return 0, 0, fmt.Errorf("model: part %d of %d: the intermediate dimension %d can be cut into 1 to %d parts", part, parts, c.Intermediate, units)
	}
	return part * units / parts * columnUnit, (part + 1) * units / parts * columnUnit, nil
}
