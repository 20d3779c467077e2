package modeltest

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"maps"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/stepvan/stepvan/examples/afd/model"
	"github.com/stepvan/stepvan/examples/afd/safetensors"
)

// Config is a model that is small, but whose products need several panels.
func Config() model.Config {
	return model.Config{
		Layers: 2, Hidden: 48, Heads: 4, Intermediate: 160, Vocabulary: 97, Positions: 80,
		Types: 2, Epsilon: 1e-12, Activation: "gelu",
	}
}

// File is a model.safetensors of that configuration, in memory.
func File(c model.Config, seed uint64) (*safetensors.File, error) {
	b := Image(c, seed)
	return safetensors.New(bytes.NewReader(b), int64(len(b)))
}

// Image gives the bytes of File.
func Image(c model.Config, seed uint64) []byte {
	rng := rand.New(rand.NewPCG(seed, 0))
	layout := model.Layout(c)
	header := map[string]any{}
	var data []byte
	for _, name := range slices.Sorted(maps.Keys(layout)) {
		begin := len(data)
		for range elements(layout[name]) {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(rng.NormFloat64()*0.3)))
		}
		header[name] = map[string]any{"dtype": "F32", "shape": layout[name], "data_offsets": []int{begin, len(data)}}
	}
	text, err := json.Marshal(header)
	if err != nil {
		panic(err) // maps of strings and numbers always marshal
	}
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(text)))
	return append(append(out, text...), data...)
}

// Sentences gives n sentences of 1 to longest random tokens.
func Sentences(c model.Config, n, longest int, seed uint64) [][]int32 {
	rng := rand.New(rand.NewPCG(seed, 1))
	out := make([][]int32, n)
	for i := range out {
		out[i] = make([]int32, 1+rng.IntN(longest))
		for t := range out[i] {
			out[i][t] = rng.Int32N(int32(c.Vocabulary))
		}
	}
	return out
}

func elements(shape []uint64) uint64 {
	n := uint64(1)
	for _, d := range shape {
		n *= d
	}
	return n
}
