package memvan

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/van"
)

func poll(v van.Van) (kinds []van.EventKind, first van.Endpoint) {
	events := make([]van.Event, 8)
	for {
		n := v.Poll(events, true)
		if n == 0 {
			return kinds, first
		}
		for _, ev := range events[:n] {
			kinds = append(kinds, ev.Kind)
			if first == nil {
				first = ev.Endpoint
			}
		}
	}
}

// met is a connection between two one-sided vans, a of which has dialled.
func met(t *testing.T, net *Network) (a, b van.Van, x, y van.Endpoint) {
	return metOver(t, net, Options{OneSided: true})
}

func metOver(t *testing.T, net *Network, o Options) (a, b van.Van, x, y van.Endpoint) {
	o.Name = "a"
	a = newVan(t, net, o)
	o.Name = "b"
	b = newVan(t, net, o)
	_, err := b.Listen("b")
	require.NoError(t, err)
	x, err = a.Dial(context.Background(), "b")
	require.NoError(t, err)
	_, y = poll(b)
	require.NotNil(t, y)
	return a, b, x, y
}

func TestMapAndReleaseDoNotAllocate(t *testing.T) {
	_, _, x, y := met(t, NewNetwork())
	g, err := y.(van.Granter).Grant(make([]byte, 1000), 1, van.RightRead)
	require.NoError(t, err)
	target := van.Target{Grant: g.ID, Generation: 1, Offset: 10}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		v, err := x.(van.Viewer).Map(target, 100, van.RightRead)
		if err != nil {
			t.Fatal(err)
		}
		v.Release()
	}))
}

func TestGrantsNeedMemoryAndRights(t *testing.T) {
	_, _, _, y := met(t, NewNetwork())
	_, err := y.(van.Granter).Grant(nil, 1, van.RightRead)
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	_, err = y.(van.Granter).Grant(make([]byte, 1), 1, 0)
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	_, err = y.(van.Granter).Grant(make([]byte, 1), 1, 4)
	require.ErrorIs(t, err, stepvan.ErrInvalid)
}
