package ps_test

import (
	"context"
	"fmt"
	"time"

	"github.com/stepvan/stepvan/peer"
	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/tensor"
)

// One peer has a matrix, and another one wants its right half again and again: a trainer and an engine, for example.
// They agree on a plan once. Each run then moves the elements of a version.
func ExampleNode_Peer() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	settings := make([]ps.Settings, 3)
	for i, role := range []ps.Role{ps.RoleScheduler, ps.RolePeer, ps.RolePeer} {
		s := ps.DefaultSettings()
		s.Role, s.NumPeer, s.RootURI, s.LogLevel = role, 2, "127.0.0.1", "off"
		settings[i] = s
	}
	nodes, err := ps.StartAll(ctx, settings)
	check(err)

	ended := make(chan error)
	for _, n := range nodes {
		go func() {
			if p := n.Peer(); p != nil {
				matrix, err := n.Memory().Zeros(tensor.Float32, 2, 4)
				check(err)
				defer matrix.Release()
				half, err := matrix.Strided().Narrow(1, 2, 2)
				check(err)
				check(exchangeHalf(ctx, p, matrix, half))
			}
			ended <- n.Stop(ctx)
		}()
	}
	for range nodes {
		check(<-ended)
	}
	// Output: peer 1 has version 1: [0 0 3 4 0 0 7 8]
}

// exchangeHalf is the program of both peers. Rank 0 sends, and rank 1 receives.
func exchangeHalf(ctx context.Context, p *peer.Peer, matrix tensor.Tensor, half tensor.Strided) error {
	numbers, err := tensor.As[float32](matrix)
	if err != nil {
		return err
	}
	var sends, recvs []peer.Move
	if p.Rank() == 0 {
		copy(numbers, []float32{1, 2, 3, 4, 5, 6, 7, 8})
		sends = []peer.Move{{ID: 1, Peer: 1, View: half, Label: "weight"}}
	} else {
		recvs = []peer.Move{{ID: 1, Peer: 0, View: half, Label: "weight"}}
	}
	plan, err := p.Plan(ctx, "weights", sends, recvs)
	if err != nil {
		return err
	}
	h, err := plan.Begin(1)
	if err != nil {
		return err
	}
	if err := h.Wait(ctx); err != nil {
		return err
	}
	if p.Rank() == 1 {
		fmt.Printf("peer 1 has version %d: %v\n", plan.Version(), numbers)
	}
	return plan.Close(ctx)
}
