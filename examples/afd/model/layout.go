package model

import (
	"fmt"
	"slices"

	"github.com/stepvan/stepvan/examples/afd/safetensors"
)

// Names of the tensors in model.safetensors; the loader and Layout share them.
const (
	wordsName     = "embeddings.word_embeddings.weight"
	positionsName = "embeddings.position_embeddings.weight"
	typesName     = "embeddings.token_type_embeddings.weight"
	embedNormName = "embeddings.LayerNorm"
)

func queryName(layer int) string      { return attentionName(layer) + "self.query" }
func keyName(layer int) string        { return attentionName(layer) + "self.key" }
func valueName(layer int) string      { return attentionName(layer) + "self.value" }
func outputName(layer int) string     { return attentionName(layer) + "output.dense" }
func outputNormName(layer int) string { return attentionName(layer) + "output.LayerNorm" }
func upName(layer int) string         { return layerName(layer) + "intermediate.dense" }
func downName(layer int) string       { return layerName(layer) + "output.dense" }
func ffnNormName(layer int) string    { return layerName(layer) + "output.LayerNorm" }
func attentionName(layer int) string  { return layerName(layer) + "attention." }
func layerName(layer int) string      { return fmt.Sprintf("encoder.layer.%d.", layer) }

// Layout gives the name and shape of every tensor that a model of this
// configuration is loaded from.
func Layout(c Config) map[string][]uint64 {
	h, inner := uint64(c.Hidden), uint64(c.Intermediate)
	layout := map[string][]uint64{
		wordsName:     {uint64(c.Vocabulary), h},
		positionsName: {uint64(c.Positions), h},
		typesName:     {uint64(c.Types), h},
	}
	norm := func(name string) {
		layout[name+".weight"], layout[name+".bias"] = []uint64{h}, []uint64{h}
	}
	linear := func(name string, out, in uint64) {
		layout[name+".weight"], layout[name+".bias"] = []uint64{out, in}, []uint64{out}
	}
	norm(embedNormName)
	for l := range c.Layers {
		for _, name := range []string{queryName(l), keyName(l), valueName(l), outputName(l)} {
			linear(name, h, h)
		}
		linear(upName(l), inner, h)
		linear(downName(l), h, inner)
		norm(outputNormName(l))
		norm(ffnNormName(l))
	}
	return layout
}

// checkLayout compares the file's shapes and types with the configuration's.
func checkLayout(c Config, f *safetensors.File) error {
	if err := c.Check(); err != nil {
		return err
	}
	for name, shape := range Layout(c) {
		info, err := f.Info(name)
		if err != nil {
			return fmt.Errorf("model: %w", err)
		}
		if info.DType != safetensors.F32 || !slices.Equal(info.Shape, shape) {
			return fmt.Errorf("model: %s is %s %v in the file; config.json asks for F32 %v", name, info.DType, info.Shape, shape)
		}
	}
	return nil
}
