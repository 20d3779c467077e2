package tcpvan

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

func TestPadding(t *testing.T) {
	for _, head := range []int{wire.HeaderSize, wire.HeaderSize + 1, 190, 191, 192, 1 << 20} {
		require.Zero(t, padding(head, 0))
		require.Zero(t, padding(head, padFrom-1))
		n := padding(head, padFrom)
		require.True(t, n >= 0 && n < padUnit)
		require.Zero(t, (head+n)%padUnit)
	}
}

// Messages with and without padding, of heads that end anywhere, follow each other.
func TestPaddedMessages(t *testing.T) {
	for _, rails := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d rails", rails), func(t *testing.T) {
			a, b := newParty(t, Options{Rails: rails}), newParty(t, Options{})
			out, _ := connect(t, a, b, "127.0.0.1:0")
			for i := range 40 {
				size := []int{padFrom, padFrom - 1, 3, 0, 1 << 20}[i%5]
				m := message(van.OpID(i), i*13, cut(pattern(size, i), 50_000)...)
				send(t, out, m, a, b)
				if i%3 == 0 {
					continue // it is received behind the next
				}
				for len(b.got) == 0 || b.got[len(b.got)-1].Delivery.Header.Request < uint64(i) {
					expectMore(t, a, b)
				}
				require.True(t, size == 0 || bytes.Equal(pattern(size, i), b.memory.bytes()), "%d bytes", size)
				for len(b.got) > 0 {
					b.next().Delivery.Release()
				}
			}
		})
	}
}

// expectMore polls until b has another event.
func expectMore(t *testing.T, a, b *party) {
	t.Helper()
	before := len(b.got)
	until(t, "another event", func() bool { return len(b.got) > before }, a, b)
}

func TestPaddedStreamSplitAnywhere(t *testing.T) {
	stream := append(flat(message(1, 33, pattern(padFrom, 1))), flat(message(2, 0))...)
	want, _ := feed(t, stream, nil)
	require.Len(t, want, 2)
	for at := 100; at < 300; at++ { // the head ends at 161, the padding at 192
		cuts := append([]byte{byte(at / 3), 0}, make([]byte, at%3)...)
		got, _ := feed(t, stream, cuts)
		require.Equal(t, want, got, "cut at %d", at)
	}
}
