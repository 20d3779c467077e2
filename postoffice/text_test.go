package postoffice

import (
	"strings"
	"testing"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stretchr/testify/require"
)

func TestRanks(t *testing.T) {
	for _, tc := range []struct {
		in   []int
		want string
	}{
		{nil, ""}, {[]int{3}, "3"}, {[]int{3, 2}, "2, 3"}, {[]int{9, 1, 2, 3, 5}, "1-3, 5, 9"},
	} {
		require.Equal(t, tc.want, ranks(tc.in))
	}
	var odd []int
	for i := range 100 {
		odd = append(odd, 2*i+1)
	}
	require.Equal(t, "1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31 and 84 more", ranks(odd))
}

func TestCrowd(t *testing.T) {
	require.Equal(t, "scheduler, server 0 and worker 1-3", instances([]Peer{
		{Role: stepvan.RoleWorker, Rank: 2}, {Role: stepvan.RoleServer}, {Role: stepvan.RoleWorker, Rank: 3}, {Role: stepvan.RoleWorker, Rank: 1}, {Role: stepvan.RoleScheduler},
	}))
	require.Empty(t, instances(nil))
}

func TestPrintable(t *testing.T) {
	require.Equal(t, "a.b.c.", printable("a\nb\x1bc\xff", 100))
	require.Equal(t, "héé", printable("héé", 5))
	require.LessOrEqual(t, len(printable(strings.Repeat("é", 100), 31)), 31)
}

func TestSeconds(t *testing.T) {
	require.Equal(t, "12 s", seconds(12*time.Second))
	require.Equal(t, "1.6 s", seconds(1620*time.Millisecond))
	require.Equal(t, "13 s", seconds(12700*time.Millisecond))
}
