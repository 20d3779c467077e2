package shmvan

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/van"
)

func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(list)
}

// A van that is closed has no descriptor left, also of a connection that was over before and whose peer
// has not released everything.
func TestCloseLeavesNoDescriptor(t *testing.T) {
	for name, poll := range map[string]bool{"over before": true, "over with it": false} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.Chmod(dir, 0o700))
			pair := func() (a, b van.Van, theirs van.Endpoint) {
				a, b = started(t, dir), started(t, dir)
				bound, err := b.Listen("")
				require.NoError(t, err)
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
				defer cancel()
				_, err = a.Dial(ctx, bound)
				require.NoError(t, err)
				return a, b, await(t, b, van.EventAccepted).Endpoint
			}
			a, b, theirs := pair() // what a process opens once
			require.NoError(t, theirs.Close())
			require.NoError(t, b.Close())
			require.NoError(t, a.Close())

			before := descriptors(t)
			a, b, theirs = pair()
			require.NoError(t, theirs.Close())
			if poll {
				require.Error(t, await(t, a, van.EventLost).Err)
			}
			require.NoError(t, a.Close())
			require.NoError(t, b.Close())
			require.Equal(t, before, descriptors(t))
		})
	}
}

func started(t *testing.T, dir string) van.Van {
	t.Helper()
	v, err := New(Options{Placer: refuseAll{}, Dir: dir})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, v.Close()) })
	return v
}

// await polls until an event of a kind comes.
func await(t *testing.T, v van.Van, k van.EventKind) van.Event {
	t.Helper()
	events := make([]van.Event, 8)
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		for _, e := range events[:v.Poll(events, true)] {
			if e.Kind == k {
				return e
			}
		}
	}
	require.FailNow(t, "the event never came")
	return van.Event{}
}

// What is told of the memory of a connection is what it takes.
func TestSideBytes(t *testing.T) {
	for _, grants := range []int{0, minSlots, 1 << 14} {
		for _, ring := range []int{0, minRing} {
			_, _, x, y := pair(t, Options{Grants: grants, RingBytes: ring})
			require.EqualValues(t, SideBytes(ring, grants), len(x.conn.own.Bytes()))
			require.EqualValues(t, SideBytes(ring, grants), len(y.conn.own.Bytes()))
		}
	}
	require.EqualValues(t, 804<<10, SideBytes(0, 0))
	require.EqualValues(t, (804-512+64)<<10, SideBytes(64<<10, 0))
	require.Equal(t, SideBytes(0, 1<<13), SideBytes(0, 1<<12+1))
}
