package model

import (
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"
)

// A panel of 64 by 128 is two of gonum's blocks. gonum computes up to three blocks in the
// caller's goroutine, over the whole inner dimension at once. The panel of the second
// operand also stays in the second-level cache.
const (
	panelRows = 64
	panelCols = 128
)

var engine gonum.Implementation

// matrix is a view: rows of cols floats, stride floats apart.
type matrix struct {
	data               []float32
	rows, cols, stride int
}

func dense(data []float32, rows, cols int) matrix {
	return matrix{data[:rows*cols], rows, cols, cols}
}

// view cuts rows [r, r+rows) and columns [c, c+cols) out.
func (m matrix) view(r, c, rows, cols int) matrix {
	from := r*m.stride + c
	return matrix{m.data[from : from+(rows-1)*m.stride+cols], rows, cols, m.stride}
}

// multiplyTransposed computes dst = scale * a * bᵀ. b's rows must be aligned.
func multiplyTransposed(dst, a, b matrix, scale float32) {
	for j := 0; j < b.rows; j += panelCols {
		bp := b.view(j, 0, min(panelCols, b.rows-j), b.cols)
		for i := 0; i < a.rows; i += panelRows {
			ap := a.view(i, 0, min(panelRows, a.rows-i), a.cols)
			dp := dst.view(i, j, ap.rows, bp.rows)
			engine.Sgemm(blas.NoTrans, blas.Trans, dp.rows, dp.cols, a.cols, scale,
				ap.data, ap.stride, bp.data, bp.stride, 0, dp.data, dp.stride)
		}
	}
}

// multiply computes dst = a * b. Each element is summed in the order of b's rows,
// wherever the operands lie.
func multiply(dst, a, b matrix) {
	for j := 0; j < b.cols; j += panelCols {
		bp := b.view(0, j, b.rows, min(panelCols, b.cols-j))
		for i := 0; i < a.rows; i += panelRows {
			ap := a.view(i, 0, min(panelRows, a.rows-i), a.cols)
			dp := dst.view(i, j, ap.rows, bp.cols)
			engine.Sgemm(blas.NoTrans, blas.NoTrans, dp.rows, dp.cols, a.cols, 1,
				ap.data, ap.stride, bp.data, bp.stride, 0, dp.data, dp.stride)
		}
	}
}

// linear is a layer y = x * wᵀ + bias; w is [out, in], as torch stores it.
type linear struct {
	w    matrix
	bias []float32
}

func (l *linear) apply(dst, x matrix) {
	multiplyTransposed(dst, x, l.w, 1)
	for r := range dst.rows {
		addTo(dst.data[r*dst.stride:][:dst.cols], l.bias)
	}
}

func addTo(dst, x []float32) {
	x = x[:len(dst)]
	for i := range dst {
		dst[i] += x[i]
	}
}
