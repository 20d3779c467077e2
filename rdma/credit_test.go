package rdma

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCreditComesBackInAnyOrder(t *testing.T) {
	var a allowance
	a.size = 4
	for i := range 4 {
		require.EqualValues(t, i+1, a.take())
	}
	require.Zero(t, a.left())
	require.True(t, a.learn(3))
	require.Equal(t, 3, a.left())
	require.True(t, a.learn(1), "an old count, that came on the slower way")
	require.Equal(t, 3, a.left())
	require.False(t, a.learn(5), "more than was sent")
	require.Equal(t, 3, a.left())
}

func TestCreditWraps(t *testing.T) {
	var a allowance
	a.size = 4
	a.sent.Store(1<<32 - 2)
	a.back.Store(1<<32 - 2)
	for range 4 {
		a.take()
	}
	require.Zero(t, a.left())
	require.True(t, a.learn(1))
	require.Equal(t, 3, a.left())
	require.False(t, a.learn(3))
	require.True(t, a.learn(1<<32-1))
	require.Equal(t, 3, a.left())
}

func TestAWrongWordOfCredit(t *testing.T) {
	var c credit
	c.messages.take()
	c.records.take()
	require.NoError(t, c.learnWord(1|1<<32))
	require.ErrorContains(t, c.learnWord(2), "2 messages are said to be consumed (want at most 1)")
	require.ErrorContains(t, c.learnWord(1|9<<32), "9 records are said to be consumed (want at most 1)")
}

// A send queue of n says at least once in a half of it that there is room.
func TestEveryHalfSendQueueIsSignaled(t *testing.T) {
	q := requests{depth: 16, added: 1<<32 - 20, retired: 1<<32 - 20, signaled: 1<<32 - 20}
	quiet := 0
	for range 100 {
		number, signaled := q.next(false)
		if quiet++; signaled {
			require.Equal(t, number, q.retire(number&numberMask))
			require.Equal(t, 16, q.all())
			quiet = 0
		}
		require.Less(t, quiet, 8)
	}
}

func TestRequestsKeepRoomForTheVan(t *testing.T) {
	q := requests{depth: 16}
	for q.room() > 0 {
		q.next(false)
	}
	require.EqualValues(t, 16-reservedRequests, q.added)
	require.Equal(t, reservedRequests, q.all())
	_, signaled := q.next(true)
	require.True(t, signaled)
}

func TestBuffersComeBackWithTheirRequests(t *testing.T) {
	var b buffers
	b.init(4)
	require.False(t, b.mustSignal())
	for i := range 3 {
		require.Equal(t, i, b.take())
		b.use(i, uint32(i+1), i == 1)
	}
	require.Equal(t, 3, b.take())
	b.inline = 1 << 3
	require.Equal(t, -1, b.take())
	b.posted()
	require.Equal(t, 3, b.take(), "what the device has copied")
	b.inline = 1 << 3
	b.retire(2)
	require.Equal(t, 0, b.take())
	require.Equal(t, 1, b.take())
	require.Equal(t, -1, b.take(), "the third request is under way, the fourth buffer not posted")
}

func TestHalfOfTheBuffersIsSignaled(t *testing.T) {
	for _, n := range []int{2, 3, 8, 64} {
		var b buffers
		b.init(n)
		in := 0
		for request := uint32(1); request < 1000; request++ {
			i := b.take()
			require.GreaterOrEqual(t, i, 0, "no buffer is free, and no request that says when")
			signaled := b.mustSignal()
			b.use(i, request, signaled)
			if in++; signaled {
				b.retire(request)
				in = 0
			}
			require.LessOrEqual(t, in, (n+1)/2)
		}
	}
}
