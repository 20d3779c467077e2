package rdma

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/shm"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

// places is a Placer that gives the same segments again and again.
type places struct {
	segments [][]byte
	refuse   error
}

func (p *places) Place(_ van.Endpoint, _ *wire.Header, _ []byte, dst [][]byte) ([][]byte, error) {
	return append(dst, p.segments...), p.refuse
}

// registered is memory that all vans have registered.
func registered(t testing.TB, size int, vans ...*rdmaVan) []byte {
	t.Helper()
	m, err := shm.Anonymous(int64(size))
	require.NoError(t, err)
	for _, v := range vans {
		require.NoError(t, v.Register(m.Bytes()))
	}
	t.Cleanup(func() {
		for _, v := range vans {
			_ = v.Close()
		}
		require.NoError(t, m.Close())
	})
	return m.Bytes()
}

// A large payload in registered memory is read by the receiver, whatever memory its Placer names.
func TestLargePayloadIsFetched(t *testing.T) {
	d := newDuo(t, Options{})
	const size = 1<<20 + 1234
	source, inbox := registered(t, size, d.vans[0]), registered(t, size, d.vans[1])
	_, _ = rand.NewChaCha8([32]byte{}).Read(source)
	heap := make([]byte, size)
	for name, segments := range map[string][][]byte{
		"registered":     {inbox},
		"in parts":       {inbox[:1], {}, inbox[1:5000], inbox[5000:]},
		"not registered": {heap},
		"of both kinds":  {inbox[:100_000], heap[100_000:300_001], inbox[300_001:900_000], heap[900_000:]},
		"in tiny parts":  {heap[:3], inbox[3:7], heap[7:8], inbox[8:9000], heap[9000:]},
		"refused":        nil,
		"once more":      {inbox},
	} {
		t.Run(name, func(t *testing.T) {
			clear(inbox)
			clear(heap)
			p := &places{segments: segments}
			if segments == nil {
				p.refuse = errors.New("no room")
			}
			d.vans[1].opt.Placer = p
			before, reads := d.ends[0].Counters(), d.ends[1].rails.first().conn.qp.Counters().Reads
			fetchedBefore := d.ends[1].Counters().Fetched
			m := van.Message{Op: 7, Head: headOf(1, size), Payload: [][]byte{source[:10], source[10:40_000], {}, source[40_000:]}}
			require.NoError(t, d.ends[0].Send(&m))
			require.False(t, m.Done, "the peer reads the source")
			small := van.Message{Op: 8, Head: headOf(2, 0)}
			require.NoError(t, d.ends[0].Send(&small))
			got := d.delivered(1)
			require.Equal(t, p.refuse, got.Refused)
			require.False(t, got.Written)
			require.Nil(t, got.Payload)
			if segments != nil {
				require.True(t, bytes.Equal(source, bytes.Join(segments, nil)))
				require.NotEqual(t, reads, d.ends[1].rails.first().conn.qp.Counters().Reads)
			} else {
				require.Equal(t, reads, d.ends[1].rails.first().conn.qp.Counters().Reads)
			}
			got.Release()
			d.delivered(1).Release()
			d.completed(0, 7)
			require.Equal(t, before.Streamed, d.ends[0].Counters().Streamed)
			fetched := d.ends[1].Counters().Fetched - fetchedBefore
			if segments != nil {
				require.EqualValues(t, size, fetched)
			} else {
				require.Zero(t, fetched)
			}
		})
	}
}

// delivered waits for a message.
func (d *duo) delivered(side int) *van.Delivery { return d.event(side, van.EventMessage).Delivery }

// completed waits for the completion of an operation. Another may come before.
func (d *duo) completed(side int, op van.OpID) {
	for {
		ev := d.event(side, van.EventCompletion)
		require.NoError(d.t, ev.Err)
		if ev.Op == op {
			return
		}
	}
}

// event polls both sides until an event of the kind comes at one. Others wait for their turn.
func (d *duo) event(side int, kind van.EventKind) van.Event {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		for i, ev := range d.waiting[side] {
			if ev.Kind == kind {
				d.waiting[side] = slices.Delete(d.waiting[side], i, i+1)
				return ev
			}
		}
		for at, v := range d.vans {
			d.waiting[at] = append(d.waiting[at], d.events[:v.Poll(d.events[:], false)]...)
		}
	}
	d.t.Fatalf("no event of kind %d came", kind)
	return van.Event{}
}

// A receiver that closes while it reads gives the memory of its Placer back.
func TestCloseDuringAFetch(t *testing.T) {
	d := newDuo(t, Options{})
	const size = 8 << 20
	source, inbox := registered(t, size, d.vans[0]), registered(t, size, d.vans[1])
	_, _ = rand.NewChaCha8([32]byte{}).Read(source)
	d.vans[1].opt.Placer = &places{segments: [][]byte{inbox}}
	m := van.Message{Op: 7, Head: headOf(1, size), Payload: [][]byte{source}}
	require.NoError(t, d.ends[0].Send(&m))
	for deadline := time.Now().Add(patience); d.ends[1].rails.first().conn.qp.Counters().Reads == 0 && time.Now().Before(deadline); {
		d.vans[1].Poll(d.events[:], false)
	}
	require.NoError(t, d.ends[1].Close())
	clear(inbox)
	ev := d.event(0, van.EventCompletion)
	require.Equal(t, van.OpID(7), ev.Op)
	require.ErrorIs(t, ev.Err, stepvan.ErrPeerLost)
	require.Equal(t, make([]byte, size), inbox)
}

// Payload on its way to memory that is not registered leaves room for messages and for credit.
func TestAFetchLeavesBuffersToMessages(t *testing.T) {
	d := newDuo(t, Options{})
	const size = 1 << 20
	source := registered(t, size, d.vans[0])
	d.vans[1].opt.Placer = &places{segments: [][]byte{make([]byte, size)}}
	require.NoError(t, d.ends[0].Send(&van.Message{Op: 7, Head: headOf(1, size), Payload: [][]byte{source}}))
	e := d.ends[1]
	most := 0
	for deadline := time.Now().Add(patience); !e.in.fetch.reading && time.Now().Before(deadline); {
		d.vans[1].Poll(d.events[:], false)
	}
	for e.in.fetch.reading {
		most = max(most, len(e.in.fetch.staged))
		d.waiting[1] = append(d.waiting[1], d.events[:d.vans[1].Poll(d.events[:], false)]...)
	}
	require.Positive(t, most)
	require.LessOrEqual(t, most, (e.rails.first().conn.sends+1)/2)
	d.delivered(1).Release()
	d.completed(0, 7)
}

// A sender that closes when its payload is on offer hears that the peer has it.
func TestCloseBehindAPayloadToBeFetched(t *testing.T) {
	d := newDuo(t, Options{})
	const size = 1 << 20
	source, inbox := registered(t, size, d.vans[0]), registered(t, size, d.vans[1])
	d.vans[1].opt.Placer = &places{segments: [][]byte{inbox}}
	require.NoError(t, d.ends[0].Send(&van.Message{Op: 7, Head: headOf(1, size), Payload: [][]byte{source}}))
	require.NoError(t, d.ends[0].Close())
	d.completed(0, 7)
	d.delivered(1).Release()
}
