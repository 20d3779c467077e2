package mx

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/internal/bulk"
	"github.com/stepvan/stepvan/tensor"
)

// BenchmarkMatrix compares both ways with a copy of as many bytes as the matrix has, in turns. The figures are the
// medians of the ratios of their rates: 0.3 takes 1/0.3 as long as the copy.
func BenchmarkMatrix(b *testing.B) {
	for _, d := range []tensor.DType{tensor.BFloat16, tensor.Float32} {
		for _, rows := range []int64{16, 512, 4096, 32768} {
			b.Run(fmt.Sprintf("%s/%dx4096", d, rows), func(b *testing.B) { compare(b, d, rows, 4096) })
		}
	}
}

func compare(b *testing.B, d tensor.DType, rows, columns int64) {
	from, codes := raw(b, d, rows, columns), raw(b, tensor.Float8E4M3FN, rows, columns)
	scales, list := raw(b, tensor.Float8E8M0FNU, rows, columns/Block), raw(b, tensor.Float8E8M0FNU, SwizzledBytes(rows, columns))
	to := make([]byte, from.Len())
	for i := range from.Bytes() {
		from.Bytes()[i] = byte(i * 7)
		if i%d.Size() == d.Size()-1 {
			from.Bytes()[i] = 0x3f
		}
	}
	names := []string{"quantize", "dequantize", "quantize-list", "dequantize-list"}
	rates := make([][]float64, len(names))
	var plain []float64
	calls := max(1, 1<<20/int(from.Len()))
	took := func(f func()) float64 {
		began := time.Now()
		for range calls {
			f()
		}
		return float64(time.Since(began).Nanoseconds()) / float64(calls)
	}
	for range max(b.N, 7) {
		for i, f := range []func() error{
			func() error { return Quantize(&codes, &scales, &from) }, func() error { return Dequantize(&from, &codes, &scales) },
			func() error { return Quantize(&codes, &list, &from) }, func() error { return Dequantize(&from, &codes, &list) },
		} {
			c := took(func() { bulk.Copy(to, from.Bytes()) })
			plain = append(plain, c)
			rates[i] = append(rates[i], c/took(func() { require.NoError(b, f()) }))
		}
	}
	b.ReportMetric(float64(from.Len())/median(plain), "copy-GB/s")
	for i, name := range names {
		b.ReportMetric(median(rates[i]), name)
	}
	b.ReportMetric(0, "ns/op")
}

func median(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)/2]
}
