package bus

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/peer"
	"github.com/stepvan/stepvan/tensor"
)

// BenchmarkTransfer measures a round of a small tensor in shared memory: the plan alone, an agent in the process, and
// clients behind sockets. The difference is what the bus takes.
func BenchmarkTransfer(b *testing.B) {
	b.Run("plan", func(b *testing.B) {
		x := newTown(b, pairtest.Shm(), 2, Options{})
		p, q := x.client(b, 0, 0), x.client(b, 1, 0)
		_, source := filled(b, p, 1, 64, 64)
		_, target := filled(b, q, 2, 64, 64)
		defer func() { require.NoError(b, errors.Join(p.Free(source), q.Free(target))) }()
		from, to := source.Strided(), target.Strided()
		plans := make([]*peer.Plan, 2)
		done := make(chan error, 2)
		go func() {
			var err error
			plans[0], err = x.peers[0].Plan(within(b), "p", []peer.Move{{ID: 1, Peer: 1, View: from}}, nil)
			done <- err
		}()
		go func() {
			var err error
			plans[1], err = x.peers[1].Plan(within(b), "p", nil, []peer.Move{{ID: 1, Peer: 0, View: to}})
			done <- err
		}()
		require.NoError(b, <-done)
		require.NoError(b, <-done)
		run := func(i int) error {
			for n := range b.N {
				h, err := plans[i].Begin(uint64(n + 1))
				if err == nil {
					err = h.Wait(context.Background())
				}
				if err != nil {
					return err
				}
			}
			return nil
		}
		b.ResetTimer()
		go func() { done <- run(0) }()
		require.NoError(b, run(1))
		require.NoError(b, <-done)
		b.StopTimer()
		for _, p := range plans {
			require.NoError(b, p.Close(within(b)))
		}
	})
	rounds := func(b *testing.B, from, to *Client) {
		done := make(chan error, 1)
		run := func(c *Client, kind TransferType) error {
			for range b.N {
				if _, err := c.Do(context.Background(), &Transfer{BatchID: "step", Type: kind}); err != nil {
					return err
				}
			}
			return nil
		}
		b.ResetTimer()
		go func() { done <- run(from, Send) }()
		require.NoError(b, run(to, Recv))
		require.NoError(b, <-done)
		b.StopTimer()
	}
	b.Run("in the process", func(b *testing.B) {
		x := newTown(b, pairtest.Shm(), 2, Options{})
		p, q := x.job(b, "training", nil, 0), x.job(b, "inference", nil, 1)
		openEverywhere(b, "p", p, q)
		_, from := filled(b, p.clients[0], 1, 64, 64)
		_, to := filled(b, q.clients[0], 2, 64, 64)
		noErrors(b, registerAll(b, "step", "p", map[*job][]tensor.Strided{p: {from.Strided()}, q: {to.Strided()}}))
		rounds(b, p.clients[0], q.clients[0])
		cleanupAll(b, "step", p, q)
		require.NoError(b, errors.Join(p.clients[0].Free(from), q.clients[0].Free(to)))
	})
	b.Run("behind sockets", func(b *testing.B) {
		x := newTown(b, pairtest.Shm(), 2, Options{})
		p := &job{"training", nil, []*Client{dialed(b, x.socket(b, 0), 0)}}
		q := &job{"inference", nil, []*Client{dialed(b, x.socket(b, 1), 0)}}
		openEverywhere(b, "p", p, q)
		_, from := filled(b, p.clients[0], 1, 64, 64)
		_, to := filled(b, q.clients[0], 1, 64, 64)
		noErrors(b, registerAll(b, "step", "p", map[*job][]tensor.Strided{p: {from.Strided()}, q: {to.Strided()}}))
		rounds(b, p.clients[0], q.clients[0])
	})
}
