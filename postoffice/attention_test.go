package postoffice

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
)

// glances stands for the link of a process that gets little of the processors.
type glances struct{ looks, wakes atomic.Uint64 }

// of has an attention look as often as it is woken, while awake is set.
func (g *glances) of(d *deferred, a *attention, awake *atomic.Bool) {
	d.lock()
	defer d.unlock()
	a.looks, a.lookNow = g.looks.Load, func() {
		g.wakes.Add(1)
		if awake.Load() {
			g.looks.Add(1)
		}
	}
}

// A process that has not looked for messages blames nobody for silence. It has its link look, and then it does.
func TestSilenceCountsWhileTheLinkLooks(t *testing.T) {
	for _, side := range []string{"node", "scheduler"} {
		t.Run(side, func(t *testing.T) {
			inCluster(t, beating, func(t *testing.T, c *cluster) {
				c.started()
				w := c.find(stepvan.RoleWorker, 1)
				var g glances
				var awake atomic.Bool
				if side == "node" {
					g.of(&w.deferred, &w.attention, &awake)
					w.pipe.peer.silence()
				} else {
					g.of(&c.s.deferred, &c.s.attention, &awake)
					new(glances).of(&w.deferred, &w.attention, new(atomic.Bool)) // the scheduler has nothing to answer
					w.pipe.silence()
				}
				time.Sleep(2 * beating.HeartbeatTimeout)
				synctest.Wait()
				require.NoError(t, w.Err(), "it may have said something that nobody has read")
				require.Positive(t, g.wakes.Load())
				awake.Store(true)
				time.Sleep(beating.HeartbeatTimeout / 2)
				synctest.Wait()
				require.ErrorContains(t, w.Err(), "silent for")
			})
		})
	}
}

// A process whose link never looks does not wait for ever.
func TestSilenceWithoutALook(t *testing.T) {
	inCluster(t, beating, func(t *testing.T, c *cluster) {
		c.started()
		w := c.find(stepvan.RoleWorker, 1)
		var g glances
		var awake atomic.Bool
		g.of(&w.deferred, &w.attention, &awake)
		w.pipe.peer.silence()
		time.Sleep((patience + 1) * beating.HeartbeatTimeout)
		synctest.Wait()
		require.ErrorContains(t, w.Err(), "silent for")
	})
}

// A look that was under way at a turn proves nothing: the message may have come behind it.
func TestALookThatBeganBefore(t *testing.T) {
	n := uint64(0)
	a := attention{looks: func() uint64 { return n }}
	for _, x := range []struct {
		looks uint64
		want  bool
	}{{0, false}, {1, false}, {1, true}, {0, false}, {5, true}} {
		n += x.looks
		_, looked := a.turn(time.Now(), time.Second)
		require.Equal(t, x.want, looked)
	}
	_, looked := new(attention).turn(time.Now(), time.Second)
	require.True(t, looked)
}
