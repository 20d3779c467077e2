package memvan

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/internal/wire"
)

func TestCutWaitsForWholeMessages(t *testing.T) {
	m := message(1, "meta", make([]byte, 10))
	whole := append(m.Head, m.Payload[0]...)
	for n := range whole {
		head, payload := cut(whole[:n], wire.DefaultLimits)
		require.Zero(t, head+payload, "%d of %d bytes", n, len(whole))
	}
	head, payload := cut(append(whole, 1, 2, 3), wire.DefaultLimits)
	require.Equal(t, len(m.Head), head)
	require.Equal(t, 10, payload)
	whole[wire.HeaderSize] ^= 1
	head, payload = cut(whole, wire.DefaultLimits)
	require.Equal(t, []int{len(m.Head), 0}, []int{head, payload}, "bad meta is for the receiver to judge")
	whole[0] ^= 1
	head, payload = cut(whole, wire.DefaultLimits)
	require.Equal(t, []int{wire.HeaderSize, 0}, []int{head, payload}, "and so is a bad header")
}

func TestDialRawNeedsAListener(t *testing.T) {
	_, err := NewNetwork(NetworkOptions{}).DialRaw("nobody")
	require.Error(t, err)
}

func FuzzCut(f *testing.F) {
	m := message(1, "meta", make([]byte, 10))
	f.Add(append(m.Head, m.Payload[0]...))
	f.Fuzz(func(t *testing.T, b []byte) {
		head, payload := cut(b, wire.DefaultLimits)
		require.True(t, head >= 0 && payload >= 0 && head+payload <= len(b))
		require.True(t, head == 0 || head >= wire.HeaderSize)
	})
}
