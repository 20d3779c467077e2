package rdma

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/race"
	"github.com/stepvan/stepvan/internal/shm"
	"github.com/stepvan/stepvan/internal/verbs"
	"github.com/stepvan/stepvan/van"
)

// duo is two vans with a connection between them.
type duo struct {
	t      testing.TB
	vans   [2]*rdmaVan
	ends   [2]*endpoint
	events [16]van.Event

	waiting [2][]van.Event // that were not looked at
}

func newDuo(t testing.TB, o Options) *duo {
	t.Helper()
	s := newSite(t, o)
	d := &duo{t: t, vans: [2]*rdmaVan{s.peer, s.v}}
	d.ends[0] = s.good.(*endpoint)
	d.ends[1] = s.v.members.all(func(*rail) bool { return true })[0].e
	d.ends[1].Settle() // for a visitor, nothing is copied to make room
	return d
}

// receive polls one side until a message comes, and releases it.
func (d *duo) receive(side int) {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		for _, ev := range d.events[:d.vans[side].Poll(d.events[:], false)] {
			switch ev.Kind {
			case van.EventMessage:
				ev.Delivery.Release()
				return
			case van.EventLost:
				d.t.Fatal(ev.Err)
			}
		}
	}
	d.t.Fatal("no message came")
}

// counts are what went through the queue pair of a side since before.
func (d *duo) counts(side int, before verbs.Counters) verbs.Counters {
	c := d.ends[side].rails.first().conn.qp.Counters()
	c.Doorbells -= before.Doorbells
	c.Requests -= before.Requests
	c.Signaled -= before.Signaled
	c.Reads -= before.Reads
	c.Bytes -= before.Bytes
	c.ReceiveDoorbells -= before.ReceiveDoorbells
	c.Receives -= before.Receives
	return c
}

// An echo of 8 bytes is one work request each way, and allocates nothing.
func TestAnEchoIsTwoWorkRequests(t *testing.T) {
	d := newDuo(t, Options{})
	m := [2]van.Message{}
	head, payload := headOf(1, 8), [][]byte{make([]byte, 8)}
	echo := func() {
		for side := range 2 {
			m[side] = van.Message{Op: 1, Head: head, Payload: payload}
			if err := d.ends[side].Send(&m[side]); err != nil || !m[side].Done {
				t.Fatal(err, m[side].Done)
			}
			d.receive(1 - side)
		}
	}
	echo()
	before := [2]verbs.Counters{d.counts(0, verbs.Counters{}), d.counts(1, verbs.Counters{})}
	const n = 200
	allocated := testing.AllocsPerRun(n-1, echo)
	for side := range 2 {
		c := d.counts(side, before[side])
		require.EqualValues(t, n, c.Requests)
		require.EqualValues(t, n, c.Doorbells)
		if d.ends[side].rails.first().queue.inline >= 256 { // else each second buffer needs a completion
			require.LessOrEqual(t, c.Signaled, uint64(n/64+1))
		}
		require.Zero(t, c.Reads)
		require.LessOrEqual(t, c.ReceiveDoorbells, uint64(n/4))
	}
	if !race.Enabled {
		require.Zero(t, allocated)
	}
}

// An exchange of activations: each way a write and a head, with one doorbell and one completion.
func TestAnExchangeIsFourWorkRequests(t *testing.T) {
	d := newDuo(t, Options{})
	var targets [2]van.Target
	var payloads [2][]byte
	for side, size := range [2]int{7 << 17, 7 << 18} {
		mem, err := shm.Anonymous(int64(size))
		require.NoError(t, err)
		from, err := shm.Anonymous(int64(size))
		require.NoError(t, err)
		require.NoError(t, d.vans[1-side].Register(mem.Bytes()))
		require.NoError(t, d.vans[side].Register(from.Bytes()))
		g, err := d.ends[1-side].Grant(mem.Bytes(), 1, van.RightWrite)
		require.NoError(t, err)
		targets[side], payloads[side] = van.Target{Grant: g.ID, Generation: 1}, from.Bytes()
		t.Cleanup(func() {
			_ = d.vans[0].Close()
			_ = d.vans[1].Close()
			require.NoError(t, mem.Close())
			require.NoError(t, from.Close())
		})
	}
	for side := range 2 { // each hears of the other's grant
		require.NoError(t, d.ends[side].Send(&van.Message{Op: 1, Head: headOf(1, 0)}))
		d.receive(1 - side)
	}
	before := [2]verbs.Counters{d.counts(0, verbs.Counters{}), d.counts(1, verbs.Counters{})}
	const n = 20
	for range n {
		for side := range 2 {
			m := van.Message{Op: 2, Head: headOf(1, len(payloads[side])), Payload: payloads[side : side+1], Target: targets[side : side+1]}
			require.NoError(t, d.ends[side].Send(&m))
			require.False(t, m.Done)
			d.receive(1 - side)
		}
	}
	for side := range 2 {
		c := d.counts(side, before[side])
		counters := d.ends[side].Counters()
		require.EqualValues(t, n*len(payloads[side]), counters.Written)
		require.Zero(t, counters.Streamed)
		require.Zero(t, counters.Fetched)
		require.GreaterOrEqual(t, counters.Completions, uint64(2*n), "of a head received, and of what was sent")
		require.Equal(t, []string{d.ends[side].rails.first().conn.device.name()}, counters.Devices)
		require.LessOrEqual(t, counters.Pinned, uint64(128<<10))
		bytes, regions := d.vans[side].Registered()
		require.EqualValues(t, len(payloads[0])+len(payloads[1]), bytes)
		require.Equal(t, 2, regions)
		require.EqualValues(t, n, c.Doorbells)
		require.EqualValues(t, 2*n, c.Requests)
		require.EqualValues(t, n, c.Signaled)
		require.Zero(t, c.Reads)
	}
}

// Messages one way, through a send queue of 16. Credit comes back by a write of 8 bytes for half a ring.
func TestAStreamOfSmallMessages(t *testing.T) {
	n := 200_000
	if testing.Short() || race.Enabled {
		n = 20_000
	}
	d := newDuo(t, Options{SendRequests: 16})
	before := [2]verbs.Counters{d.counts(0, verbs.Counters{}), d.counts(1, verbs.Counters{})}
	got := 0
	poll := func() {
		for _, ev := range d.events[:d.vans[1].Poll(d.events[:], false)] {
			if ev.Delivery != nil {
				got++
				ev.Delivery.Release()
			}
		}
		d.vans[0].Poll(d.events[:], false)
	}
	head := headOf(1, 0)
	for sent := 0; sent < n; {
		err := d.ends[0].Send(&van.Message{Op: 1, Head: head})
		if err == nil {
			sent++
			continue
		}
		require.ErrorIs(t, err, stepvan.ErrWouldBlock)
		poll()
	}
	for deadline := time.Now().Add(patience); got < n && time.Now().Before(deadline); {
		poll()
	}
	require.Equal(t, n, got)
	c, back := d.counts(0, before[0]), d.counts(1, before[1])
	require.EqualValues(t, n, c.Requests)
	if d.ends[0].rails.first().queue.inline >= 256 {
		require.LessOrEqual(t, c.Signaled, uint64(n/8+1))
	}
	require.LessOrEqual(t, back.Requests, uint64(n/8+1))
	require.LessOrEqual(t, back.ReceiveDoorbells, uint64(n/5+1))
}
