package van

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCursorWalksThroughSegments(t *testing.T) {
	segments := [][]byte{[]byte("abc"), nil, []byte("defgh"), []byte("i")}
	for limit := int64(1); limit < 10; limit++ {
		var c Cursor
		var all []byte
		for c.Segment < len(segments) {
			before := c
			p := c.Next(segments, limit)
			require.LessOrEqual(t, int64(len(p)), limit)
			if len(p) > 0 {
				require.Same(t, &segments[before.Segment][before.Offset], &p[0], "no copy")
			}
			all = append(all, p...)
		}
		require.Equal(t, "abcdefghi", string(all))
		require.Equal(t, Cursor{Segment: len(segments)}, c)
	}
}

func TestCursorCopies(t *testing.T) {
	for step := 1; step < 10; step++ {
		segments := [][]byte{make([]byte, 3), nil, make([]byte, 5), make([]byte, 1)}
		var to, from, skipped Cursor
		var got []byte
		for rest := []byte("abcdefghi"); len(rest) > 0; {
			n := min(step, len(rest))
			to.Scatter(segments, rest[:n])
			piece := make([]byte, n)
			from.Gather(piece, segments)
			got, rest = append(got, piece...), rest[n:]
			skipped.Skip(segments, int64(n))
			require.Equal(t, to, from)
			require.Equal(t, to, skipped)
		}
		require.Equal(t, "abcdefghi", string(got))
		require.EqualValues(t, 9, Total(segments))
	}
}
