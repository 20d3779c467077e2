package affinity

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
)

// onThread runs fn on a thread of its own, which ends with it.
func onThread(fn func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked
		fn()
	}()
	<-done
}

func TestPinBindsTheThread(t *testing.T) {
	before, err := Allowed()
	require.NoError(t, err)
	last := before.Cores()[before.Len()-1]
	onThread(func() {
		if err := Pin(Range(last, 1)); err != nil {
			t.Error(err)
		}
		after, err := Allowed()
		if err != nil || after.String() != Range(last, 1).String() {
			t.Errorf("bound to %v: %v", after, err)
		}
	})
	after, err := Allowed()
	require.NoError(t, err)
	require.Equal(t, before.String(), after.String(), "other threads stay as they were")
}

func TestPinToNothing(t *testing.T) {
	onThread(func() {
		for _, s := range []Set{{}, Range(MaxCores-1, 1)} {
			if err := Pin(s); err == nil {
				t.Errorf("bound to %q", s)
			}
		}
	})
	require.ErrorIs(t, Pin(Set{}), stepvan.ErrInvalid)
	for _, s := range []Set{{}, Range(MaxCores-1, 1), Range(0, MaxCores)} {
		_, err := Claim(s)
		require.ErrorIs(t, err, stepvan.ErrInvalid)
	}
}

func TestClaimsBindEveryThreadAndEnd(t *testing.T) {
	home, err := Home()
	require.NoError(t, err)
	hold := make(chan struct{})
	defer close(hold)
	for range 4 { // threads in addition to those of the runtime
		started := make(chan struct{})
		go func() {
			runtime.LockOSThread()
			close(started)
			<-hold
		}()
		<-started
	}
	before, err := masks()
	require.NoError(t, err)
	first, last := Range(home.Cores()[0], 1), Range(home.Cores()[home.Len()-1], 1)
	one, err := Claim(first)
	require.NoError(t, err)
	requireMasks(t, first)
	two, err := Claim(last)
	require.NoError(t, err, "cores of Home, though the process is bound to others")
	requireMasks(t, first.Or(last))
	require.NoError(t, one())
	require.NoError(t, one(), "again")
	requireMasks(t, last)
	again, err := Home()
	require.NoError(t, err)
	require.Equal(t, home.String(), again.String())
	require.NoError(t, two())
	after, err := masks()
	require.NoError(t, err)
	for tid, mask := range after {
		want, known := before[tid]
		if !known {
			want = home
		}
		require.Equal(t, want.String(), mask.String(), "thread %d", tid)
	}
}

func requireMasks(t *testing.T, want Set) {
	t.Helper()
	all, err := masks()
	require.NoError(t, err)
	require.Greater(t, len(all), 4)
	for tid, mask := range all {
		require.Equal(t, want.String(), mask.String(), "thread %d", tid)
	}
}

func TestNearRunsInAnyCase(t *testing.T) {
	cores, err := Allowed()
	require.NoError(t, err)
	nodes, err := Machine{}.NodesOf(cores)
	require.NoError(t, err)
	if len(nodes) == 0 {
		nodes = []int{0}
	}
	for _, list := range [][]int{nodes, nil, {-1}, {maxNodes}} {
		ran := false
		err := Near(list, func() { ran = true })
		require.True(t, ran)
		if len(list) == 0 || list[0] != nodes[0] {
			require.ErrorIs(t, err, stepvan.ErrInvalid)
		} else if err != nil {
			require.ErrorIs(t, err, stepvan.ErrNotSupported)
		}
	}
}
