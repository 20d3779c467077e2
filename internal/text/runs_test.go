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

func TestRanges(t *testing.T) {
	for _, tc := range []struct {
		in   []int
		want string
	}{
		{nil, ""}, {[]int{3}, "3"}, {[]int{3, 2}, "2-3"}, {[]int{9, 1, 2, 3, 5}, "1-3, 5, 9"},
	} {
		require.Equal(t, tc.want, Ranges(tc.in, 16))
	}
	var odd []int
	for i := range 100 {
		odd = append(odd, 2*i+1)
	}
	require.Equal(t, "1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31 and 84 more", Ranges(odd, 16))
}
