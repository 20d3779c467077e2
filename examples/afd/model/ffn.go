package model

// FFNSlice is a server's half: the columns [lo, hi) of the intermediate dimension
// of every layer's feed-forward net.
type FFNSlice struct {
	cfg    Config
	lo, hi int
	layers []ffnLayer
}

type ffnLayer struct {
	up   linear // [hi-lo, hidden]
	down matrix // [hidden, hi-lo]
}

// Config is the model's configuration.
func (f *FFNSlice) Config() Config { return f.cfg }

// Partial computes the slice's share of layer's feed-forward net: out = gelu(x
// upᵀ + bias) downᵀ, without the output bias. x and out are [tokens, hidden], and
// must not overlap. The number of tokens follows from len(x).
func (f *FFNSlice) Partial(layer int, x, out []float32, s *Scratch) {
	l, h := &f.layers[layer], f.cfg.Hidden
	tokens := len(x) / h
	inner := dense(s.inner, tokens, f.hi-f.lo)
	l.up.apply(inner, dense(x, tokens, h))
	gelu(inner.data)
	multiplyTransposed(dense(out, tokens, h), inner, l.down, 1)
}
