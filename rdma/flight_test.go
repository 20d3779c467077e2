package rdma

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A buffer that is kept becomes free when the peer has the slot, and the device has read it.
func TestKeptBuffers(t *testing.T) {
	var b buffers
	b.init(4)
	i := b.take()
	b.keep(i, true, 10)
	b.inline = 1 << uint(i)
	b.posted()
	require.Equal(t, 1, b.take(), "the first is kept, though the device has copied it")
	b.drop(i, 10)
	require.Equal(t, 0, b.take())
	b.use(0, 99, false)

	b.keep(1, false, 10)
	b.use(1, 11, true)
	b.retire(11)
	require.Equal(t, 2, b.take(), "the second is kept, though the device has read it")
	b.drop(1, 11)
	require.Equal(t, 1, b.take())
	b.use(1, 99, false)

	b.keep(2, false, 11)
	b.use(2, 12, true)
	b.drop(2, 11)
	require.Equal(t, 3, b.take(), "the peer has the third, and the device may still read it")
	require.Equal(t, -1, b.take())
	b.retire(12)
	require.Equal(t, 2, b.take())
}

func TestFlightKeepsWhatThePeerMayNotHave(t *testing.T) {
	var f flight
	var b buffers
	var all operations
	all.init(4, nil)
	b.init(4)
	f.init(4, 4)
	o := all.push()
	o.parts = 2
	for request := uint32(1); request <= 3; request++ {
		c := carried{buffer: b.take(), number: 10 + request, request: request}
		if request < 3 {
			c.to = mark{write: 1} // it has writes
		}
		b.keep(c.buffer, true, 0)
		f.push(c)
	}
	f.complete(1, &all)
	require.Equal(t, 1, o.parts)
	require.True(t, f.at(1).complete)
	f.reclaim(2, &b, 1)
	require.EqualValues(t, 13, f.at(f.first).number)
	require.False(t, f.empty())
	f.complete(3, &all)
	require.Zero(t, o.parts)
	f.at(2).finish(&all)
	require.Zero(t, o.parts, "each part counts once")
	f.reclaim(3, &b, 3)
	require.True(t, f.empty())
	require.EqualValues(t, 1<<4-1, b.free)

	f.records = []carriedRecord{{number: 1}, {number: 4}}
	f.forget(3)
	require.Equal(t, []carriedRecord{{number: 4}}, f.records)
}

func TestSlotsAreTakenInOrder(t *testing.T) {
	var q slotQueue
	q.init(5)
	require.Len(t, q.ring, 8)
	q.next = 1<<32 - 2
	for _, n := range []uint32{0, 1<<32 - 1, 5} {
		require.True(t, q.fits(n))
		q.push(filled{bytes: []byte{byte(n)}, prefix: prefix{number: n}})
		require.False(t, q.fits(n), "it is there")
	}
	require.False(t, q.fits(6), "too far ahead")
	require.False(t, q.fits(1<<32-3), "it was taken")
	require.True(t, q.empty())
	q.push(filled{bytes: []byte{9}, prefix: prefix{number: 1<<32 - 2}})
	for _, want := range []byte{9, 255, 0} {
		require.False(t, q.empty())
		require.Equal(t, want, q.front().bytes[0])
		q.pop()
	}
	require.True(t, q.empty())
}

// Writes between two marks are cut where the marks are.
func TestWritesBetweenMarks(t *testing.T) {
	o := operation{writes: []write{{from: make([]byte, 10)}, {from: make([]byte, 20)}, {from: make([]byte, 30)}}}
	for _, c := range []struct {
		from, to mark
		want     [][2]int64
	}{
		{mark{0, 0}, mark{3, 0}, [][2]int64{{0, 10}, {0, 20}, {0, 30}}},
		{mark{0, 4}, mark{1, 5}, [][2]int64{{4, 10}, {0, 5}}},
		{mark{1, 5}, mark{1, 6}, [][2]int64{{5, 6}}},
		{mark{1, 5}, mark{2, 0}, [][2]int64{{5, 20}}},
		{mark{2, 0}, mark{2, 0}, nil},
	} {
		var got [][2]int64
		between(&o, c.from, c.to, func(_ *write, at, end int64) { got = append(got, [2]int64{at, end}) })
		require.Equal(t, c.want, got)
	}
	o.next = 3
	require.Equal(t, mark{write: 3}, o.mark())
}

func TestPayloadIsCutIntoEvenParts(t *testing.T) {
	o := operation{writes: []write{{from: make([]byte, 100_000), done: 1000}, {from: make([]byte, 1000)}}}
	require.EqualValues(t, 100_000, o.unwritten(1))
	require.EqualValues(t, 53_248, o.unwritten(2))
	require.EqualValues(t, 36_864, o.unwritten(3))
	o.next = 2
	require.Zero(t, o.unwritten(2))
}
