package bus_test

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/stepvan/stepvan/bus"
	"github.com/stepvan/stepvan/layout"
	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/tensor"
)

// A job sends the rows of a matrix, which the other job receives as columns.
func Example() {
	ctx := context.Background()
	network := ps.NewNetwork() // in place of a scheduler in a process of its own
	settings := func(role ps.Role) ps.Settings {
		s := ps.DefaultSettings()
		s.Role, s.NumPeer, s.RootURI, s.RootPort, s.LogLevel = role, 4, "127.0.0.1", 9000, "off"
		return s
	}
	var g errgroup.Group
	g.Go(func() error { return run(ctx, network, settings(ps.RoleScheduler), nil) })
	for range 4 {
		g.Go(func() error { return run(ctx, network, settings(ps.RolePeer), program) })
	}
	if err := g.Wait(); err != nil {
		fmt.Println(err)
	}
	// Output: inference has column 0 of both rows: [0 10]
}

func run(ctx context.Context, network *ps.Network, s ps.Settings, f func(ctx context.Context, n *ps.Node) error) error {
	n, err := ps.Start(ctx, s, ps.WithNetwork(network))
	if err != nil {
		return err
	}
	if f != nil {
		err = f(ctx, n)
	}
	return errors.Join(err, n.Stop(ctx))
}

// program is what each process of both jobs does. Ranks 0 and 1 are training, 2 and 3 inference.
func program(ctx context.Context, n *ps.Node) error {
	side, partner, kind, dim, dims := "training", "inference", bus.Send, 0, []int64{1, 2}
	if n.Rank() >= 2 {
		side, partner, kind, dim, dims = "inference", "training", bus.Recv, 1, []int64{2, 1}
	}
	agent, err := bus.NewAgent(ctx, n.Peer(), n.Board(), bus.Options{Memory: n.Memory()})
	if err != nil {
		return err
	}
	client, err := agent.Client(bus.ClientOptions{Rank: int(n.Rank()) % 2})
	if err != nil {
		return err
	}
	weights, err := client.Empty(ctx, tensor.Float32, dims...)
	if err != nil {
		return err
	}
	data, err := tensor.As[float32](weights)
	if err != nil {
		return err
	}
	if kind == bus.Send {
		data[0], data[1] = float32(10*n.Rank()), float32(10*n.Rank()+1)
	}
	do := func(c bus.Command) {
		if err == nil {
			_, err = client.Do(ctx, c)
		}
	}
	do(&bus.InitPair{
		PairName: "weights", LocalName: side, ExpectedWorldSize: 2, RemoteName: partner,
		MeshShape: bus.EncodeMesh([]int{2}), Placements: bus.EncodePlacements([]layout.Placement{layout.Shard(dim)}),
	})
	if err == nil {
		err = client.Register(ctx, "step 1", []bus.Tensor{{Pair: "weights", View: weights.Strided()}})
	}
	do(&bus.Transfer{BatchID: "step 1", Type: kind})
	if err == nil && n.Rank() == 2 {
		fmt.Println("inference has column 0 of both rows:", data)
	}
	do(&bus.CleanupBatch{BatchID: "step 1"})
	return errors.Join(err, client.Close(ctx), client.Free(weights), agent.Close(ctx))
}
