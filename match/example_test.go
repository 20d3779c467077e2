package match_test

import (
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/layout"
	"github.com/stepvan/stepvan/match"
	"github.com/stepvan/stepvan/tensor"
)

// Two trainers have the rows of a matrix, and inference needs its columns 0 to 2.
func ExampleFind() {
	shape := tensor.ShapeOf(4, 6)
	rows := layout.Layout{Mesh: layout.MeshOf(2), Placements: []layout.Placement{{Kind: layout.Sharded, Dim: 0}}}
	columns := layout.Layout{Mesh: layout.MeshOf(2), Placements: []layout.Placement{{Kind: layout.Sharded, Dim: 1}}}
	part := func(l layout.Layout, index int) []match.Tensor {
		p, err := l.Part(shape, index)
		if err != nil {
			panic(err)
		}
		return []match.Tensor{{Name: "mlp.weight", DType: tensor.BFloat16, Part: p}}
	}
	ranks := []stepvan.Rank{0, 1, 2}
	states := []match.State{{Sends: part(rows, 0)}, {Sends: part(rows, 1)}, {Receives: part(columns, 0)}}

	described := make([][]byte, len(states))
	for i := range states {
		described[i], _ = states[i].Append(nil) // which the peers tell each other
	}
	moves, err := match.Find(ranks, described, 2)
	for _, m := range moves.Receives {
		fmt.Println("from peer", m.Peer, "to", m.Offset[:2], "size", m.Extent[:2])
	}
	fmt.Println(err)
	// Output:
	// from peer 0 to [0 0] size [2 3]
	// from peer 1 to [2 0] size [2 3]
	// <nil>
}
