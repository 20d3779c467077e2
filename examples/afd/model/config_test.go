package model

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

const good = `{"num_hidden_layers":6,"hidden_size":384,"num_attention_heads":12,"intermediate_size":1536,
"vocab_size":30522,"max_position_embeddings":512,"type_vocab_size":2,"layer_norm_eps":1e-12,"hidden_act":"gelu"}`

func TestParseConfig(t *testing.T) {
	c, err := ParseConfig([]byte(good))
	require.NoError(t, err)
	require.Equal(t, 32, c.headDim())
}

func TestConfigRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"no layers":        {func(c *Config) { c.Layers = 0 }, "num_hidden_layers"},
		"giant vocabulary": {func(c *Config) { c.Vocabulary = 1 << 40 }, "vocab_size"},
		"uneven heads":     {func(c *Config) { c.Heads = 7 }, "hidden_size"},
		"narrow heads":     {func(c *Config) { c.Heads = 192 }, "hidden_size"},
		"odd intermediate": {func(c *Config) { c.Intermediate = 1530 }, "intermediate_size"},
		"no epsilon":       {func(c *Config) { c.Epsilon = 0 }, "layer_norm_eps"},
		"tanh gelu":        {func(c *Config) { c.Activation = "gelu_new" }, "hidden_act"},
		"relative":         {func(c *Config) { c.Position = "relative_key" }, "position_embedding_type"},
	} {
		t.Run(name, func(t *testing.T) {
			bad, err := ParseConfig([]byte(good))
			require.NoError(t, err)
			c.change(&bad)
			require.ErrorContains(t, bad.Check(), c.want)
		})
	}
	_, err := ParseConfig([]byte("["))
	require.ErrorContains(t, err, "not a config.json")
}

func TestSliceBoundsCoverAndAlign(t *testing.T) {
	c, err := ParseConfig([]byte(good))
	require.NoError(t, err)
	for parts := 1; parts <= c.Intermediate/columnUnit; parts++ {
		at := 0
		for part := range parts {
			lo, hi, err := c.SliceBounds(part, parts)
			require.NoError(t, err)
			require.Equal(t, at, lo)
			require.Zero(t, hi%columnUnit)
			require.Greater(t, hi, lo)
			at = hi
		}
		require.Equal(t, c.Intermediate, at)
	}
	for _, bad := range [][2]int{{0, 0}, {-1, 2}, {2, 2}, {0, 97}} {
		_, _, err := c.SliceBounds(bad[0], bad[1])
		require.Error(t, err)
	}
}

func TestAlignedFloats(t *testing.T) {
	for n := range 200 {
		f := alignedFloats(n)
		require.Len(t, f, n)
		require.Zero(t, uintptr(unsafe.Pointer(unsafe.SliceData(f)))%alignment)
	}
}
