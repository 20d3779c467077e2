package faults

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
	"github.com/stepvan/stepvan/van/memvan"
)

// whole is a message of 4 bytes of meta and 10 of payload, as it is written.
func whole() (message []byte, head int) {
	h := wire.Header{Kind: wire.KindData, Payload: 10, Total: 10}
	b := append(make([]byte, wire.HeaderSize), "meta"...)
	h.Encode(b, b[wire.HeaderSize:])
	return append(b, make([]byte, 10)...), len(b)
}

func TestCutWaitsForWholeMessages(t *testing.T) {
	message, size := whole()
	for n := range message {
		head, payload := cut(message[:n])
		require.Zero(t, head+payload, "%d of %d bytes", n, len(message))
	}
	head, payload := cut(append(message, 1, 2, 3))
	require.Equal(t, size, head)
	require.Equal(t, 10, payload)
	message[wire.HeaderSize] ^= 1
	head, payload = cut(message)
	require.Equal(t, []int{size, 10}, []int{head, payload}, "bad meta is for the receiver to judge")
	message[0] ^= 1
	head, payload = cut(message)
	require.Equal(t, []int{wire.HeaderSize, 0}, []int{head, payload}, "and so is a bad header")
}

func TestRawDialNeedsAListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := memvan.NewNetwork()
		_, err := RawDial(func(p van.Placer, wake func()) (van.Van, error) {
			return memvan.New(net, memvan.Options{Placer: p, Wake: wake})
		})("nobody")
		require.Error(t, err)
	})
}

func FuzzCut(f *testing.F) {
	message, _ := whole()
	f.Add(message)
	f.Fuzz(func(t *testing.T, b []byte) {
		head, payload := cut(b)
		require.True(t, head >= 0 && payload >= 0 && head+payload <= len(b))
		require.True(t, head == 0 || head >= wire.HeaderSize)
	})
}
