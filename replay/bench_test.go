package replay

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/tensor"
)

// BenchmarkGather picks 16 MiB of rows of 400 bytes, as a collector does for one slot.
func BenchmarkGather(b *testing.B) {
	const benchBytes = 1 << 20
	const rows = 16 << 20 / 400
	buffer, err := NewBuffer(Layout{tensor.Float32, []Field{{"row", 100}}}, rows)
	require.NoError(b, err)
	require.NoError(b, buffer.Add(b.Context(), make([]byte, 400*rows)))
	s, err := buffer.snapshot(b.Context(), 0)
	require.NoError(b, err)
	to := make([]byte, 400*(benchBytes/400))
	b.SetBytes(400 * rows)
	for b.Loop() {
		for first := uint64(0); first < rows; first += benchBytes / 400 {
			s.gather(to, 7, first, 16<<20)
		}
	}
}
