package postoffice

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/pairtest"
)

// thousand is a cluster of 1,000 nodes in one process, each with its own link.
var thousand = SchedulerOptions{Workers: 800, Servers: 200, Options: Options{GroupSize: 8, HeartbeatInterval: 5 * time.Second, HeartbeatTimeout: 2 * time.Minute}}

func TestThousandNodes(t *testing.T) {
	if testing.Short() {
		t.Skip("1,000 nodes take seconds under the race detector")
	}
	l := newLive(t, pairtest.Mem(), thousand)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	l.start(ctx)
	require.Len(t, l.s.Peers(), 1000)
	require.Len(t, l.offices[l.find(stepvan.RoleWorker, 799)].Peers(), 25)
	require.Len(t, l.offices[l.find(stepvan.RoleServer, 64)].Peers(), 100)
	for _, instances := range []bool{true, false} {
		l.all(func(i int) error {
			if !instances && l.offices[i].Self().LocalRank != 0 {
				return nil // one instance of each node
			}
			return l.offices[i].Barrier(ctx, GroupNodes, instances)
		})
	}
	l.all(func(i int) error {
		if i%50 == 0 { // each of them decodes a thousand entries
			return l.meetOnBoard(ctx, i, []byte("here"))
		}
		return l.offices[i].Board().Post(ctx, fmt.Sprintf("meet/%d", i), []byte("here"))
	})
	l.all(func(i int) error { return l.offices[i].Stop(ctx) })
	require.NoError(t, l.s.Stop(ctx))
	require.Empty(t, l.dead)
}

// BenchmarkStart is the time from 1,000 nodes that exist to a cluster that runs.
func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		l := newLive(b, pairtest.Mem(), thousand)
		b.StartTimer()
		l.start(b.Context())
		b.StopTimer()
		l.all(func(i int) error { return l.offices[i].Stop(b.Context()) })
		require.NoError(b, l.s.Stop(b.Context()))
		b.StartTimer()
	}
}

// BenchmarkBarrier is one barrier over 1,000 nodes.
func BenchmarkBarrier(b *testing.B) {
	l := newLive(b, pairtest.Mem(), thousand)
	l.start(b.Context())
	ctx := b.Context()
	for b.Loop() {
		l.all(func(i int) error { return l.offices[i].Barrier(ctx, GroupNodes, true) })
	}
}
