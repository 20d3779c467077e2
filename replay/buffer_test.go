package replay

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/tensor"
)

func TestABufferKeepsTheLastRows(t *testing.T) {
	b, err := NewBuffer(small(), 5)
	require.NoError(t, err)
	require.Equal(t, 5, b.Capacity())
	at := 0
	for _, n := range []int{0, 2, 2, 3, 5, 4, 1} {
		require.NoError(t, b.Add(t.Context(), rowsOf(small(), at, n)))
		at += n
		require.EqualValues(t, at, b.Written())
		require.Equal(t, min(at, 5), b.Held())
		for n := max(at-5, 0); n < at; n++ {
			require.Equal(t, rowsOf(small(), n, 1), b.memory[n%5*32:][:32], "row %d of %d", n, at)
		}
	}
	x, err := tensor.FromBytes(tensor.Float32, tensor.ShapeOf(2, 8), rowsOf(small(), at, 2))
	require.NoError(t, err)
	require.NoError(t, b.AddTensor(t.Context(), &x))
	require.Equal(t, rowsOf(small(), at, 1), b.memory[at%5*32:][:32])
	for _, wrong := range [][]byte{make([]byte, 31), make([]byte, 6*32)} {
		require.ErrorIs(t, b.Add(t.Context(), wrong), stepvan.ErrInvalid)
	}
	y, err := tensor.FromBytes(tensor.Float32, tensor.ShapeOf(4, 4), make([]byte, 64))
	require.NoError(t, err)
	require.ErrorContains(t, b.AddTensor(t.Context(), &y), "want rows of 8 float32")
	require.EqualValues(t, at+2, b.Written())
}

// Rows that a batch may pick are replaced only when it is packed. Others are added meanwhile.
func TestAddWaitsForABatchThatMayPickTheRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, err := NewBuffer(small(), 4)
		require.NoError(t, err)
		require.NoError(t, b.Add(t.Context(), rowsOf(small(), 0, 2)))
		s, err := b.snapshot(t.Context(), 2)
		require.NoError(t, err)
		require.NoError(t, b.Add(t.Context(), rowsOf(small(), 2, 2)))
		require.Equal(t, []uint64{2, 2}, []uint64{s.written, s.held})
		soon, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, b.Add(soon, rowsOf(small(), 4, 1)), context.Canceled)
		added := make(chan error, 1)
		go func() { added <- b.Add(t.Context(), rowsOf(small(), 4, 1)) }()
		synctest.Wait()
		require.Empty(t, added)
		rows := make([]byte, 50*32)
		s.gather(rows, 7, 0, 0)
		require.Equal(t, picked(small(), 7, 50, 2, 4), rows)
		s.release()
		require.NoError(t, <-added)
		require.EqualValues(t, 5, b.Written())
	})
}

// A snapshot that needs rows waits until they were added.
func TestASnapshotWaitsForItsRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, err := NewBuffer(small(), 4)
		require.NoError(t, err)
		for _, least := range []uint64{0, 6} {
			taken := make(chan snapshot, 1)
			go func() {
				s, err := b.snapshot(t.Context(), least)
				require.NoError(t, err)
				taken <- s
			}()
			for b.Written() < max(least, 1) {
				synctest.Wait()
				require.Empty(t, taken)
				require.NoError(t, b.Add(t.Context(), rowsOf(small(), int(b.Written()), 1)))
			}
			s := <-taken
			require.Equal(t, max(least, 1), s.written)
			s.release()
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = b.snapshot(gone, 100)
		require.ErrorIs(t, err, context.Canceled)
	})
}

// The picks are the documented ones: the reference implementation of SplitMix64 gives these numbers.
func TestPicks(t *testing.T) {
	// SplitMix64 with the state 1234567 gives 6457827717110365317, 3203168211198807973, 9817491932198370423.
	for i, want := range []uint64{6457827717110365317, 3203168211198807973, 9817491932198370423} {
		for _, size := range []uint64{1, 2, 1000, 1<<32 - 1} {
			require.Equal(t, (want>>32)*size>>32, Pick(1234567, uint64(i), size))
		}
	}
	counts := [10]int{}
	for i := range uint64(100_000) {
		counts[Pick(3, i, 10)]++
	}
	for _, n := range counts {
		require.InDelta(t, 10_000, n, 400)
	}
}

// A filler makes any bytes of a share, also those that begin and end amid rows, and names where long rows lie.
func TestAFillerBeginsAmidRows(t *testing.T) {
	for _, width := range []int64{8, longRow, bulkRow} { // short rows, rows that sockets take, rows that pass the caches
		l := Layout{tensor.Uint8, []Field{{"row", width}}}
		b, err := NewBuffer(l, 5)
		require.NoError(t, err)
		all := make([]byte, 5*width)
		for i := range all {
			all[i] = byte(i % 253)
		}
		require.NoError(t, b.Add(t.Context(), all))
		s, err := b.snapshot(t.Context(), 0)
		require.NoError(t, err)
		var want []byte
		for i := uint64(3); i < 23; i++ {
			at := int64(Pick(7, i, 5)) * width
			want = append(want, all[at:at+width]...)
		}
		f := &filler{}
		f.open(s, &ask{seed: 7, rows: 20})
		f.first = 3
		for _, at := range []int64{0, 1, width - 1, width, 5*width + 3} {
			for _, n := range []int64{1, width - 1, width, 3*width + 2, int64(len(want)) - at} {
				to := make([]byte, n)
				f.Make(to, at)
				require.Equal(t, want[at:at+n], to)
				list := f.AppendSources(nil, at, n)
				require.Equal(t, width >= longRow, list != nil)
				if list != nil {
					require.Equal(t, want[at:at+n], bytes.Join(list, nil))
				}
			}
		}
		require.False(t, f.isFree())
		f.Free()
		require.True(t, f.isFree())
		require.Zero(t, b.picking)
	}
}
