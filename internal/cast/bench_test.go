//go:build amd64 && !race

package cast

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stepvan/stepvan/internal/bulk"
	"github.com/stepvan/stepvan/tensor"
)

// BenchmarkKernels compares conversions and merges with a copy of as many bytes as they read of the source, in turns.
// The figures are the medians of the ratios of their rates: 0.7 is a conversion that takes 1/0.7 as long as the copy.
func BenchmarkKernels(b *testing.B) {
	for name, l := range withSets() {
		for _, size := range []int{16 << 10, 256 << 10, 4 << 20, 64 << 20, 256 << 20} {
			if name == "plain" && size > 1<<20 {
				continue
			}
			b.Run(fmt.Sprintf("%s/%dKiB", name, size>>10), func(b *testing.B) { compare(b, l, size) })
		}
	}
}

func compare(b *testing.B, l *loops, size int) {
	x, y := make([]byte, 4*size), make([]byte, size)
	copy(y, operandsOf(tensor.Uint8, true))
	var names []string
	var kernels []func()
	add := func(name string, to, from tensor.DType, m Merge) {
		k, err := l.kernel(to, from, m)
		if err != nil {
			b.Fatal(err)
		}
		names, kernels = append(names, name), append(kernels, func() { k.Run(first(x), first(y), size/from.Size()) })
	}
	add("f32-bf16", tensor.BFloat16, tensor.Float32, Overwrite)
	add("bf16-f32", tensor.Float32, tensor.BFloat16, Overwrite)
	add("f32-f16", tensor.Float16, tensor.Float32, Overwrite)
	add("f16-f32", tensor.Float32, tensor.Float16, Overwrite)
	add("bf16-f16", tensor.Float16, tensor.BFloat16, Overwrite)
	add("bf16-e4m3", tensor.Float8E4M3FN, tensor.BFloat16, Overwrite)
	add("e4m3-bf16", tensor.BFloat16, tensor.Float8E4M3FN, Overwrite)
	add("f32+f32", tensor.Float32, tensor.Float32, Sum)
	add("bf16+bf16", tensor.BFloat16, tensor.BFloat16, Sum)
	add("f32+bf16", tensor.Float32, tensor.BFloat16, Sum)
	add("max(f32)", tensor.Float32, tensor.Float32, Max)
	rates, rounds := make([][]float64, len(kernels)), max(b.N, 5)
	var plain []float64
	calls := max(1, 1<<20/size)
	took := func(f func()) float64 {
		began := time.Now()
		for range calls {
			f()
		}
		return float64(time.Since(began).Nanoseconds()) / float64(calls)
	}
	for range rounds {
		for i, kernel := range kernels {
			c := took(func() { bulk.Copy(x, y) })
			plain = append(plain, c)
			rates[i] = append(rates[i], c/took(kernel))
		}
	}
	slices.Sort(plain)
	b.ReportMetric(float64(size)/plain[len(plain)/2], "copy-GB/s")
	for i, name := range names {
		slices.Sort(rates[i])
		b.ReportMetric(rates[i][len(rates[i])/2], name)
	}
	b.ReportMetric(0, "ns/op")
}

// withSets are the loops of the benchmark: those in assembly, and those in Go.
func withSets() map[string]*loops {
	all := sets()
	all["plain"] = plain()
	return all
}
