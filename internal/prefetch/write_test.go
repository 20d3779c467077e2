package prefetch_test

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/internal/prefetch"
)

// Nothing may be changed, and no address may fault.
func TestPrefetchTouchesNothing(t *testing.T) {
	b := make([]byte, 1000)
	for i := range b {
		b[i] = byte(i)
	}
	for n := range uintptr(300) {
		prefetch.Write(unsafe.Pointer(&b[n]), n)
	}
	for i := range b {
		require.Equal(t, byte(i), b[i])
	}
	prefetch.Write(nil, 200)
}

func BenchmarkWrite(b *testing.B) {
	var x [128]byte
	for b.Loop() {
		prefetch.Write(unsafe.Pointer(&x), 128)
	}
}
