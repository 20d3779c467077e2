package faults_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/vantest/faults"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
	"github.com/stepvan/stepvan/van/memvan"
)

func TestCorruptCostsTheConnection(t *testing.T) {
	overVans(t, faults.Options{}, func(t *testing.T, net *faults.Network, k kind) {
		a, b := pair(t, net, k)
		out, _ := connect(t, a, b, k)
		require.NoError(t, out.Send(message(1, "fine")))
		await(t, b, "M")
		require.Equal(t, 1, net.Corrupt("a", "b"))
		m := message(2, "damaged")
		require.NoError(t, out.Send(m))
		require.Equal(t, "damaged", string(m.Head[wire.HeaderSize:]), "the caller's memory stays")
		if k.sound {
			require.Equal(t, "damage\xe4", string(await(t, b, "M")[0].Delivery.Meta))
			return
		}
		lost := await(t, b, "L")
		var pe *stepvan.ProtocolError
		require.ErrorAs(t, lost[0].Err, &pe)
		require.Equal(t, "checksum", pe.Field)
	})
}

func TestDelayAndJitterKeepOrderOfAnEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 200
		net := faults.New(faults.Options{Seed: 7, Delay: 10 * time.Millisecond, Jitter: 30 * time.Millisecond})
		k := mem(memvan.Options{})
		a, b := pair(t, net, k)
		addr := listen(t, b, k)
		start := time.Now()
		outs := []van.Endpoint{dial(t, a, addr), dial(t, a, addr), dial(t, a, addr), dial(t, a, addr)}
		for i := range n {
			require.NoError(t, outs[i%len(outs)].Send(message(van.OpID(i+1), "", []byte{byte(i)})))
		}
		require.Empty(t, poll(a))
		last := map[van.Endpoint]uint64{}
		var order []uint64
		for len(order) < n {
			time.Sleep(time.Millisecond)
			for _, ev := range poll(b) {
				if ev.Kind != van.EventMessage {
					continue
				}
				seq := ev.Delivery.Header.Sequence
				require.Greater(t, seq, last[ev.Endpoint])
				last[ev.Endpoint] = seq
				order = append(order, seq)
				ev.Delivery.Release()
			}
		}
		require.GreaterOrEqual(t, time.Since(start), 10*time.Millisecond)
		require.NotEqual(t, increasing(n), order, "jitter must reorder between endpoints")
	})
}

func increasing(n int) (s []uint64) {
	for i := range n {
		s = append(s, uint64(i+1))
	}
	return s
}

func TestReorderIsSeeded(t *testing.T) {
	run := func(o faults.Options) (order []uint64) {
		net, k := faults.New(o), mem(memvan.Options{})
		hub := newVan(t, net, k, "hub", noWake)
		addr := listen(t, hub, k)
		for i := range 32 {
			ep := dial(t, newVan(t, net, k, fmt.Sprint(i), noWake), addr)
			require.NoError(t, ep.Send(message(van.OpID(i), "")))
		}
		for range 2 {
			for _, ev := range poll(hub) {
				if ev.Kind == van.EventMessage {
					order = append(order, ev.Delivery.Header.Sequence)
				}
			}
		}
		require.Len(t, order, 32)
		return order
	}
	plain := run(faults.Options{Seed: 1})
	one := run(faults.Options{Seed: 1, Reorder: true})
	require.Equal(t, one, run(faults.Options{Seed: 1, Reorder: true}))
	require.NotEqual(t, one, plain)
	require.NotEqual(t, one, run(faults.Options{Seed: 2, Reorder: true}))
}

func TestLossIsSeeded(t *testing.T) {
	run := func(seed uint64) (survived int) {
		net, k := faults.New(faults.Options{Seed: seed, LossRate: 0.02}), mem(memvan.Options{Queue: 4096})
		a, b := pair(t, net, k)
		require.True(t, a.Caps().Lossy)
		out, _ := connect(t, a, b, k)
		for survived < 4000 && out.Send(message(van.OpID(survived), "")) == nil {
			survived++
		}
		events := 0
		for range survived/256 + 1 {
			events += len(poll(a))
		}
		require.Equal(t, survived, events-1, "all completions and the loss")
		return survived
	}
	first := run(1)
	require.Less(t, first, 4000)
	require.Equal(t, first, run(1))
	differs := false
	for seed := range uint64(5) {
		differs = differs || run(seed+2) != first
	}
	require.True(t, differs)
}
