package stress

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// bookSpan is the number of different pages of one length.
const bookSpan = 1 << 20

// book is the source of all payload: a table of random bytes, the same in every process. Each
// message shows another window of it. So bytes of another message, key or peer are wrong wherever
// they appear. Filling and checking cost no more than a copy and a comparison.
type book struct{ table []byte }

// newBook makes pages of up to largest bytes.
func newBook(largest int64) *book {
	b := &book{make([]byte, bookSpan+largest)}
	_, _ = rand.NewChaCha8([32]byte{'b', 'o', 'o', 'k'}).Read(b.table) // never fails
	return b
}

// label names a message: its sender, its key, and its number among the messages of that key.
type label struct{ from, key, seq uint64 }

// page is what the message must hold. Read only.
func (b *book) page(l label, n int64) []byte {
	at := mix(l.from^mix(l.key^mix(l.seq))) % bookSpan
	return b.table[at : int64(at)+n]
}

// mix is the finaliser of splitmix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// check says what is wrong with a message that has arrived.
func (b *book) check(l label, got []byte) error {
	want := b.page(l, int64(len(got)))
	if bytes.Equal(got, want) {
		return nil
	}
	at := 0
	for got[at] == want[at] {
		at++
	}
	for back := uint64(1); back <= 4 && back <= l.seq; back++ {
		old := l
		old.seq -= back
		if bytes.Equal(got[at:], b.page(old, int64(len(got)))[at:]) {
			return fmt.Errorf("message %+v: from byte %d of %d on it holds message %d", l, at, len(got), old.seq)
		}
	}
	n := min(at+8, len(got))
	return fmt.Errorf("message %+v: byte %d of %d is wrong: % x..., want % x...", l, at, len(got), got[at:n], want[at:n])
}

func TestWrongBytesAreFound(t *testing.T) {
	b := newBook(4096)
	l := label{from: 1, key: 7, seq: 100}
	page := func() []byte { return bytes.Clone(b.page(l, 4096)) }
	require.NoError(t, b.check(l, page()))
	require.NoError(t, newBook(4096).check(l, page()), "all processes have the same book")
	require.NoError(t, b.check(l, nil))
	for at := range 4096 {
		got := page()
		got[at] ^= 1
		require.Error(t, b.check(l, got))
	}
	for name, other := range map[string]label{
		"the last one": {1, 7, 99}, "the next one": {1, 7, 101}, "another key": {1, 8, 100}, "another peer": {2, 7, 100},
	} {
		require.Error(t, b.check(l, b.page(other, 4096)), name)
		require.Error(t, b.check(l, b.page(other, 8)), name)
		got := page()
		copy(got[4000:], b.page(other, 4096)[4000:])
		require.Error(t, b.check(l, got), "its tail is of %s", name)
	}
}
