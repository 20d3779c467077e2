package model_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/examples/afd/model"
	"github.com/stepvan/stepvan/examples/afd/safetensors"
)

// reference is a BERT encoder written straight from the formulas, in float64 and
// without any of the package's matrix code.
type reference struct {
	t *testing.T
	c model.Config
	f *safetensors.File
}

func (r *reference) tensor(name string) []float64 {
	info, err := r.f.Info(name)
	require.NoError(r.t, err)
	raw := make([]float32, info.Elements())
	require.NoError(r.t, r.f.ReadFloat32(name, 0, raw))
	out := make([]float64, len(raw))
	for i, v := range raw {
		out[i] = float64(v)
	}
	return out
}

func (r *reference) linear(name string, x [][]float64) [][]float64 {
	w, b := r.tensor(name+".weight"), r.tensor(name+".bias")
	out := make([][]float64, len(x))
	for t, row := range x {
		out[t] = make([]float64, len(b))
		for o := range b {
			sum := b[o]
			for i, v := range row {
				sum += v * w[o*len(row)+i]
			}
			out[t][o] = sum
		}
	}
	return out
}

func (r *reference) norm(name string, x, residual [][]float64) [][]float64 {
	gain, bias := r.tensor(name+".weight"), r.tensor(name+".bias")
	out := make([][]float64, len(x))
	for t, row := range x {
		sum, square := 0.0, 0.0
		v := make([]float64, len(row))
		for i := range row {
			v[i] = row[i] + residual[t][i]
			sum += v[i]
			square += v[i] * v[i]
		}
		n := float64(len(row))
		mean := sum / n
		deviation := math.Sqrt(square/n - mean*mean + r.c.Epsilon)
		for i := range v {
			v[i] = (v[i]-mean)/deviation*gain[i] + bias[i]
		}
		out[t] = v
	}
	return out
}

func (r *reference) attention(layer string, x [][]float64) [][]float64 {
	q := r.linear(layer+"attention.self.query", x)
	k := r.linear(layer+"attention.self.key", x)
	v := r.linear(layer+"attention.self.value", x)
	d := r.c.Hidden / r.c.Heads
	out := make([][]float64, len(x))
	for t := range x {
		out[t] = make([]float64, r.c.Hidden)
		for at := 0; at < r.c.Hidden; at += d {
			weights, total := make([]float64, len(x)), 0.0
			for s := range x {
				dot := 0.0
				for i := at; i < at+d; i++ {
					dot += q[t][i] * k[s][i]
				}
				weights[s] = math.Exp(dot / math.Sqrt(float64(d)))
				total += weights[s]
			}
			for s := range x {
				for i := at; i < at+d; i++ {
					out[t][i] += weights[s] / total * v[s][i]
				}
			}
		}
	}
	return r.linear(layer+"attention.output.dense", out)
}

func (r *reference) feedForward(layer string, x [][]float64) [][]float64 {
	inner := r.linear(layer+"intermediate.dense", x)
	for _, row := range inner {
		for i, v := range row {
			row[i] = 0.5 * v * (1 + math.Erf(v/math.Sqrt2))
		}
	}
	return r.linear(layer+"output.dense", inner)
}

func (r *reference) embed(ids []int32) []float64 {
	h := r.c.Hidden
	words, positions := r.tensor("embeddings.word_embeddings.weight"), r.tensor("embeddings.position_embeddings.weight")
	kinds := r.tensor("embeddings.token_type_embeddings.weight")
	x, rest := make([][]float64, len(ids)), make([][]float64, len(ids))
	for t, id := range ids {
		x[t], rest[t] = words[int(id)*h:int(id+1)*h], make([]float64, h)
		for i := range h {
			rest[t][i] = positions[t*h+i] + kinds[i]
		}
	}
	x = r.norm("embeddings.LayerNorm", x, rest)
	for l := range r.c.Layers {
		layer := "encoder.layer." + string(rune('0'+l)) + "."
		x = r.norm(layer+"attention.output.LayerNorm", r.attention(layer, x), x)
		x = r.norm(layer+"output.LayerNorm", r.feedForward(layer, x), x)
	}
	return unit(x)
}

func unit(x [][]float64) []float64 {
	out, square := make([]float64, len(x[0])), 0.0
	for i := range out {
		for _, row := range x {
			out[i] += row[i]
		}
		square += out[i] * out[i]
	}
	for i := range out {
		out[i] /= math.Sqrt(square)
	}
	return out
}
