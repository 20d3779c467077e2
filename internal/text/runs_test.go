package text

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRuns(t *testing.T) {
	for _, c := range []struct {
		sorted []int
		want   [][2]int
	}{
		{nil, nil},
		{[]int{7}, [][2]int{{7, 7}}},
		{[]int{0, 1, 2, 5, 7, 8}, [][2]int{{0, 2}, {5, 5}, {7, 8}}},
		{[]int{3, 3, 4}, [][2]int{{3, 3}, {3, 4}}},
	} {
		var got [][2]int
		for first, last := range Runs(c.sorted) {
			got = append(got, [2]int{first, last})
		}
		require.Equal(t, c.want, got)
	}
	for first := range Runs([]int{1, 3}) {
		require.Equal(t, 1, first)
		break
	}
}
