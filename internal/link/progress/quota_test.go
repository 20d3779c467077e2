package progress

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAQuotaCountsAsUsedUpForAWhile(t *testing.T) {
	var q quota
	count := int64(7)
	throttled := func() int64 { return count }
	now := int64(1)
	look := func(after int64) bool {
		now += after
		q.look(now, throttled)
		return q.usedUp(now)
	}
	require.False(t, look(0), "periods before the first look do not count")
	require.False(t, look(quotaEvery))
	count = 8
	require.False(t, look(quotaEvery/2), "a look is not due")
	require.True(t, look(quotaEvery/2))
	require.True(t, look(usedUpFor-1))
	require.False(t, look(1))
}

// No waiter polls for long while the processes of the group use more than their quota.
func TestAUsedUpQuotaEndsThePolling(t *testing.T) {
	calm(t)
	t.Cleanup(func() { cpus.quota.until.Store(0) })
	e := &Engine{policy: newPolicy(Options{}, true)}
	w := &wait{engine: e, ev: &Event{Kind: Answer}, start: 1}
	b := e.policy.budget(e.history(Answer))
	b.yielded = 1 << 60 // the test has its core or not, which does not matter here
	for range fewest {
		b.history.note(200 * us)
	}
	require.True(t, w.staysAwake(&b, 50*us, 50*us, 10))
	cpus.quota.until.Store(100 * us)
	require.False(t, w.staysAwake(&b, 60*us, 60*us, 11))
	require.Zero(t, w.wakeAt, "it sleeps until its event")
	require.True(t, w.staysAwake(&b, 100*us, 100*us, 12))
}
