package faults_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/internal/vantest/faults"
	"github.com/stepvan/stepvan/van"
)

func TestStallHoldsBothDirections(t *testing.T) {
	overVans(t, faults.Options{}, func(t *testing.T, net *faults.Network, k kind) {
		a, b := pair(t, net, k)
		out, in := connect(t, a, b, k)
		require.True(t, net.Stall("b"))
		require.False(t, net.Stall("nobody"))
		require.NoError(t, out.Send(message(1, "to b")))
		payload, spare := []byte("payload"), make([]byte, 7)
		m := message(2, "to a", payload)
		m.Spare = spare
		require.NoError(t, in.Send(m))
		require.False(t, m.Done)
		clear(payload)
		m.Payload[0] = nil
		for range 100 {
			for _, ev := range poll(a) {
				require.Equal(t, van.EventCompletion, ev.Kind)
			}
			require.Empty(t, poll(b))
		}
		require.True(t, b.Arm())
		require.True(t, net.Resume("b"))
		got := map[van.EventKind]int{}
		for end := time.Now().Add(bound); got[van.EventCompletion] == 0 && time.Now().Before(end); runtime.Gosched() {
			for _, ev := range poll(b) {
				got[ev.Kind]++
			}
			for _, ev := range poll(a) {
				if ev.Kind == van.EventMessage {
					require.Equal(t, "to a", string(ev.Delivery.Meta))
				}
			}
		}
		require.Equal(t, map[van.EventKind]int{van.EventCompletion: 1, van.EventMessage: 1}, got)
		require.Equal(t, "payload", string(spare))
	})
}

func TestWhatAStalledVanSends(t *testing.T) {
	overVans(t, faults.Options{}, func(t *testing.T, net *faults.Network, k kind) {
		for name, end := range map[string]func(out van.Endpoint){
			"cut":    func(van.Endpoint) { require.Equal(t, 1, net.Cut("a", "b")) },
			"close":  func(out van.Endpoint) { require.NoError(t, out.Close()) },
			"killed": func(van.Endpoint) { require.True(t, net.Kill("a")) },
			"peer":   func(van.Endpoint) { require.True(t, net.Kill("b")) },
		} {
			t.Run(name, func(t *testing.T) {
				a, b := pair(t, net, k)
				out, _ := connect(t, a, b, k)
				require.True(t, net.Stall("a"))
				accepted := 0
				for out.Send(message(van.OpID(accepted), "", make([]byte, 100))) == nil {
					accepted++
				}
				require.Greater(t, accepted, 10)
				end(out)
				net.Resume("a")
				var events []van.Event
				for end := time.Now().Add(bound); len(events) < accepted && time.Now().Before(end); runtime.Gosched() {
					events = append(events, poll(a)...)
				}
				for i, ev := range events[:accepted] {
					require.Equal(t, van.EventCompletion, ev.Kind)
					require.Equal(t, van.OpID(i), ev.Op)
				}
				require.NoError(t, a.Close())
				require.NoError(t, b.Close())
			})
		}
	})
}

// A message that came while the van stood still woke its owner in vain, and later ones do not. So Resume has to.
func TestResumeWakes(t *testing.T) {
	overVans(t, faults.Options{}, func(t *testing.T, net *faults.Network, k kind) {
		wakes := 0
		a, b := newVan(t, net, k, "a", noWake), newVan(t, net, k, "b", func() { wakes++ })
		out, _ := connect(t, a, b, k)
		require.True(t, net.Stall("b"))
		require.True(t, b.Arm())
		require.NoError(t, out.Send(message(1, "one")))
		require.Empty(t, poll(b))
		require.True(t, b.Arm(), "a van that stands still has nothing to poll")
		require.NoError(t, out.Send(message(2, "two")))
		wakes = 0
		require.True(t, net.Resume("b"))
		require.Positive(t, wakes)
		await(t, b, "MM")
	})
}
