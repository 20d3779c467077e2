package worker

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFencesWaitForThoseThatHaveBegun(t *testing.T) {
	var q fenceTracker
	q.request(1)
	require.EqualValues(t, 1, q.take(), "nobody writes")

	a := q.begin()
	q.request(2)
	require.Zero(t, q.take(), "a may still write")
	b := q.begin() // knows of the withdrawal
	q.end(a)
	require.EqualValues(t, 2, q.take(), "b need not be waited for")

	q.request(3)
	require.Zero(t, q.take())
	c := q.begin()
	q.request(4)
	q.request(5)
	d := q.begin()
	q.end(b)
	require.EqualValues(t, 3, q.take())
	e := q.begin()
	q.end(d)
	require.Zero(t, q.take(), "c began before the fourth")
	q.end(c)
	require.EqualValues(t, 5, q.take(), "the later one says both")
	q.end(e)
	require.Zero(t, q.take())
	require.Equal(t, [2]int{}, q.writing)
}

// Requests begin and end, and withdrawals come, in any order. A fence follows every withdrawal, and no request that
// began before it.
func FuzzFences(f *testing.F) {
	f.Add([]byte{0, 2, 0, 2, 1, 1})
	f.Fuzz(func(t *testing.T, steps []byte) {
		type writer struct {
			phase uint8
			began uint32 // withdrawals before it
		}
		var q fenceTracker
		var running []writer
		var withdrawals, fenced uint32
		settle := func() {
			if g := q.take(); g > 0 {
				require.Greater(t, g, fenced)
				fenced = g
				for _, p := range running {
					require.GreaterOrEqual(t, p.began, g, "a request that began before the withdrawal still writes")
				}
			}
		}
		for _, s := range steps {
			switch s % 3 {
			case 0:
				running = append(running, writer{q.begin(), withdrawals})
			case 1:
				if len(running) > 0 {
					i := int(s) / 3 % len(running)
					q.end(running[i].phase)
					running = append(running[:i], running[i+1:]...)
				}
			case 2:
				withdrawals++
				q.request(withdrawals)
			}
			settle()
		}
		for _, p := range running {
			q.end(p.phase)
		}
		running = nil
		settle()
		require.Equal(t, withdrawals, fenced)
	})
}
