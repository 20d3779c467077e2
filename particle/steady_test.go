package particle_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/internal/race"
	"github.com/stepvan/stepvan/particle"
)

// After many messages nothing has grown.
func TestManyMessagesLeaveNothing(t *testing.T) {
	messages := 100_000
	if race.Enabled {
		messages = 5_000
	}
	c := newCluster(t, pairtest.Mem(), 2, nil)
	ids := []particle.ID{0, 1}
	for rank := range ids {
		c.create(rank, 0, map[string]particle.Hook{"echo": echo, "pass": passOn("", ids[1-rank], "echo")})
	}
	send := func(n int) {
		var fs []*particle.Future
		for i := range n {
			f, err := c.loops[0].Send(particle.None, ids[i%2], []string{"echo", "pass"}[i/2%2], text("x"))
			require.NoError(t, err)
			if fs = append(fs, f); len(fs) == 100 {
				require.NoError(t, c.loops[0].Wait(limited(t), fs...))
				for _, f := range fs {
					_, err := f.Result()
					require.NoError(t, err)
				}
				fs = fs[:0]
			}
		}
	}
	send(messages / 10)
	before, goroutines := heap(), runtime.NumGoroutine()
	send(messages)
	for _, l := range c.loops {
		require.Zero(t, particle.Kept(l))
	}
	require.Less(t, heap(), before+4<<20)
	require.Less(t, runtime.NumGoroutine(), goroutines+50, "goroutines of the devices come and go")
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func BenchmarkThereAndBack(b *testing.B) {
	for _, v := range []pairtest.Van{pairtest.Shm(), pairtest.TCP()} {
		for rank := range 2 {
			b.Run(fmt.Sprintf("%s/%d", v.Name, rank), func(b *testing.B) {
				c := newCluster(b, v, 2, nil)
				id := c.create(rank, 0, map[string]particle.Hook{"echo": echo})
				ctx := limited(b)
				b.ReportAllocs()
				for b.Loop() {
					f, err := c.loops[0].Send(particle.None, id, "echo", particle.Value{Data: []byte("12345678")})
					if err != nil {
						b.Fatal(err)
					}
					if _, err := f.Wait(ctx); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
