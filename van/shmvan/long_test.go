package shmvan

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

// longMessage has meta that no ring of the tests takes in one record.
func longMessage(op van.OpID, meta int, payload ...[]byte) *van.Message {
	m := message(op, payload...)
	var h wire.Header
	if err := h.Decode(m.Head, wire.DefaultLimits); err != nil {
		panic(err)
	}
	h.Meta = uint32(meta)
	m.Head = make([]byte, wire.HeaderSize+meta)
	for i := range meta {
		m.Head[wire.HeaderSize+i] = byte(i * 7)
	}
	h.Encode(m.Head, m.Head[wire.HeaderSize:])
	return m
}

// Heads longer than the ring pass it, with payload of every kind behind them, and between short messages.
func TestLongHeads(t *testing.T) {
	for name, o := range map[string]Options{
		"shared": {RingBytes: minRing, Files: memory()}, "private": {RingBytes: minRing, NoForeign: true}, "two-sided": {RingBytes: minRing, TwoSided: true},
	} {
		t.Run(name, func(t *testing.T) {
			a, b, x, _ := pair(t, o)
			require.Equal(t, int(wire.DefaultLimits.Meta), a.v.Caps().MaxMeta)
			op := van.OpID(0)
			for _, meta := range []int{minRing/8 - wire.HeaderSize, minRing/8 - wire.HeaderSize + 1, chunkBytes, 3*minRing + 5, a.v.Caps().MaxMeta} {
				for _, size := range []int{0, 1, 1 << 10, 20 << 10, 300 << 10} {
					payload := make([]byte, size)
					for i := range payload {
						payload[i] = byte(i * 3)
					}
					op++
					m := longMessage(op, meta, payload)
					want := append([]byte(nil), m.Head[wire.HeaderSize:]...)
					require.NoError(t, x.Send(m))
					clear(m.Head) // which is free again
					var ev [1]van.Event
					var got *van.Delivery
					a.eventually("the message", func() bool {
						a.v.Poll(make([]van.Event, 1), true)
						if b.v.Poll(ev[:], true) == 1 && ev[0].Kind == van.EventMessage {
							got = ev[0].Delivery
						}
						return got != nil
					})
					require.Equal(t, want, got.Meta)
					require.False(t, got.Written)
					if got.Payload == nil {
						require.Equal(t, payload, b.room[:size])
					} else {
						require.Equal(t, payload, got.Payload)
					}
					got.Release()
					op++
					a.eventually("room", func() bool { a.v.Poll(make([]van.Event, 4), true); return x.Send(message(op)) == nil })
					d := b.until(van.EventMessage).Delivery
					require.EqualValues(t, op, d.Header.Sequence)
					d.Release()
				}
			}
		})
	}
}

// A payload that is written into granted memory can have a long head, too.
func TestLongHeadOfAWrite(t *testing.T) {
	a, b, x, y := pair(t, Options{RingBytes: minRing, Files: memory()})
	mem := shared(t, 4096)
	g, err := granter{y}.Grant(mem, 1, everything)
	require.NoError(t, err)
	m := longMessage(1, 2*minRing, []byte("abc"), []byte("def"))
	m.Target = []van.Target{{Grant: g.ID, Generation: 1, Offset: 100}, {Grant: g.ID, Generation: 1}}
	require.NoError(t, x.Send(m))
	await := func() (got *van.Delivery) {
		a.eventually("the message", func() bool {
			var ev [1]van.Event
			a.v.Poll(make([]van.Event, 1), true)
			if b.v.Poll(ev[:], true) == 1 && ev[0].Kind == van.EventMessage {
				got = ev[0].Delivery
			}
			return got != nil
		})
		require.True(t, got.Written)
		require.EqualValues(t, 6, got.Header.Payload)
		require.Len(t, got.Meta, 2*minRing)
		return got
	}
	got := await()
	require.Equal(t, "abc", string(mem[100:103]))
	require.Equal(t, "def", string(mem[:3]))
	got.Release()
	require.NoError(t, x.Send(&van.Message{Head: longMessage(1, 2*minRing, make([]byte, 6)).Head, Written: 6}))
	await().Release()
	m.Target[0].Grant += 1 << 20
	require.ErrorIs(t, x.Send(m), stepvan.ErrStale)
}

// What a peer says of a long head, and sends of it, is checked.
func TestHostileLongHeads(t *testing.T) {
	long := func(head uint32, flags uint32, size uint64) func(e *endpoint) {
		return func(e *endpoint) { put(e, kindLong, head, flags, size, nil) }
	}
	chunk := func(says uint64, b []byte) func(e *endpoint) {
		return func(e *endpoint) { put(e, kindChunk, 0, 0, says, b) }
	}
	head := longMessage(1, 100).Head
	for name, steps := range map[string][]func(e *endpoint){
		"short":               {long(wire.HeaderSize-1, 0, 0)},
		"beyond the limit":    {long(wire.HeaderSize+wire.DefaultLimits.Meta+1, 0, 0)},
		"flags":               {long(wire.HeaderSize, 2, 0)},
		"nothing":             {long(uint32(len(head)), 0, 0), chunk(0, nil)},
		"more than announced": {long(uint32(len(head)), 0, 0), chunk(uint64(len(head)+1), append(head[:len(head):len(head)], 0))},
		"more than is there":  {long(uint32(len(head)), 0, 0), chunk(1<<20, head)},
		"garbage":             {long(uint32(len(head)), 0, 0), chunk(uint64(len(head)), make([]byte, len(head)))},
		"payload differs":     {long(uint32(len(head)), 0, 1), chunk(uint64(len(head)), head)},
		"meta differs":        {long(uint32(len(head)-1), 0, 0), chunk(uint64(len(head)-1), head)},
		"interrupted":         {long(uint32(len(head)), 0, 0), chunk(8, head[:8]), long(uint32(len(head)), 0, 0)},
	} {
		t.Run(name, func(t *testing.T) {
			_, b, x, _ := pair(t, Options{RingBytes: minRing})
			for _, step := range steps {
				step(x)
			}
			require.ErrorAs(t, b.until(van.EventLost).Err, new(*stepvan.ProtocolError))
		})
	}
}

// put writes a record as a hostile peer would.
func put(e *endpoint, k kind, head, segs uint32, size uint64, body []byte) {
	e.conn.mu.Lock()
	defer e.conn.mu.Unlock()
	rec, _ := e.sender.out.begin(align(recBody + len(body)))
	le := binary.LittleEndian
	le.PutUint32(rec[recHead:], head)
	le.PutUint32(rec[recSegs:], segs)
	le.PutUint64(rec[recSize:], size)
	copy(rec[recBody:], body)
	e.sender.out.publish(len(rec), k, 0)
	e.conn.wakeIfAsleep()
}
