package model

import "github.com/stepvan/stepvan/examples/afd/safetensors"

// LoadAttention reads the worker's half. f may be closed afterwards.
func LoadAttention(c Config, f *safetensors.File) (*Attention, error) {
	if err := checkLayout(c, f); err != nil {
		return nil, err
	}
	r := reader{file: f}
	a := &Attention{
		cfg:       c,
		words:     r.floats(wordsName, c.Vocabulary*c.Hidden),
		positions: r.floats(positionsName, c.Positions*c.Hidden),
		kind:      r.floats(typesName, c.Hidden), // one sentence at a time: type 0
		embedNorm: r.norm(embedNormName, c),
	}
	for l := range c.Layers {
		a.layers = append(a.layers, r.attentionLayer(l, c))
	}
	return a, r.err
}

// LoadFFN reads part number part of parts of the feed-forward nets. f may be
// closed afterwards.
func LoadFFN(c Config, f *safetensors.File, part, parts int) (*FFNSlice, error) {
	if err := checkLayout(c, f); err != nil {
		return nil, err
	}
	lo, hi, err := c.SliceBounds(part, parts)
	if err != nil {
		return nil, err
	}
	r := reader{file: f}
	s := &FFNSlice{cfg: c, lo: lo, hi: hi}
	for l := range c.Layers {
		s.layers = append(s.layers, r.ffnLayer(l, c, lo, hi))
	}
	return s, r.err
}

// reader keeps the first error, so that a layer can be read as one expression.
type reader struct {
	file *safetensors.File
	err  error
}

func (r *reader) into(name string, first int, dst []float32) {
	if r.err == nil {
		r.err = r.file.ReadFloat32(name, uint64(first), dst)
	}
}

// floats reads the first n elements into aligned memory.
func (r *reader) floats(name string, n int) []float32 {
	dst := alignedFloats(n)
	r.into(name, 0, dst)
	return dst
}

func (r *reader) norm(name string, c Config) layerNorm {
	return layerNorm{
		gain:    r.floats(name+".weight", c.Hidden),
		bias:    r.floats(name+".bias", c.Hidden),
		epsilon: c.Epsilon,
	}
}

func (r *reader) attentionLayer(l int, c Config) attentionLayer {
	h := c.Hidden
	return attentionLayer{
		qkv: r.stacked(h, queryName(l), keyName(l), valueName(l)),
		output: linear{
			w:    dense(r.floats(outputName(l)+".weight", h*h), h, h),
			bias: r.floats(outputName(l)+".bias", h),
		},
		norm:    r.norm(outputNormName(l), c),
		ffnBias: r.floats(downName(l)+".bias", h),
		ffnNorm: r.norm(ffnNormName(l), c),
	}
}

// stacked reads square layers of width h above each other into one.
func (r *reader) stacked(h int, names ...string) linear {
	w, bias := alignedFloats(len(names)*h*h), alignedFloats(len(names)*h)
	for i, name := range names {
		r.into(name+".weight", 0, w[i*h*h:(i+1)*h*h])
		r.into(name+".bias", 0, bias[i*h:(i+1)*h])
	}
	return linear{dense(w, len(names)*h, h), bias}
}

// ffnLayer reads rows [lo, hi) of the up matrix and columns [lo, hi) of the down matrix.
// It packs the columns, so that their rows are aligned.
func (r *reader) ffnLayer(l int, c Config, lo, hi int) ffnLayer {
	h, width := c.Hidden, hi-lo
	up, bias, down := alignedFloats(width*h), alignedFloats(width), alignedFloats(h*width)
	r.into(upName(l)+".weight", lo*h, up)
	r.into(upName(l)+".bias", lo, bias)
	for row := range h {
		r.into(downName(l)+".weight", row*c.Intermediate+lo, down[row*width:(row+1)*width])
	}
	return ffnLayer{up: linear{dense(up, width, h), bias}, down: dense(down, h, width)}
}
