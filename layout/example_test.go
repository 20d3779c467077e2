package layout_test

import (
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/layout"
	"github.com/stepvan/stepvan/tensor"
)

// Two trainers with half of the rows each send a matrix to three engines with a third of the columns each.
func ExampleRedistribute() {
	trainers := layout.Layout{Mesh: layout.MeshOf(2), Placements: []layout.Placement{layout.Shard(0)}}
	engines := layout.Layout{Mesh: layout.MeshOf(3), Placements: []layout.Placement{layout.Shard(1)}}
	plan, err := layout.Redistribute(trainers, engines, tensor.ShapeOf(4, 6))
	if err != nil {
		fmt.Println(err)
		return
	}
	var moves layout.Moves
	if err := plan.Assign(1, trainers.Sources(1), &moves); err != nil {
		fmt.Println(err)
		return
	}
	for i := range moves.Len() {
		v := moves.At(i)
		fmt.Println("rank", v.Source, "sends", v.Extent[:v.Rank], "from", v.Src[:v.Rank], "to", v.Dst[:v.Rank])
	}
	// Output:
	// rank 0 sends [2 2] from [0 2] to [0 0]
	// rank 1 sends [2 2] from [0 2] to [2 0]
}

// The parts of FSDP2 over tensor parallelism: the second dimension of the mesh cuts first.
func ExampleLayout_Part() {
	fsdp := layout.Layout{
		Mesh:       layout.MeshOf(2, 2),
		Placements: []layout.Placement{layout.StridedShard(0, 2), layout.Shard(0)},
	}
	for index := range fsdp.Mesh.Size() {
		part, err := fsdp.Part(tensor.ShapeOf(8), index)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(index, part.Spans(0))
	}
	// Output:
	// 0 [{0 2 0}]
	// 1 [{4 6 0}]
	// 2 [{2 4 0}]
	// 3 [{6 8 0}]
}

// A gated matrix, whose halves Megatron-core divides one by one, goes from two ranks to one.
func ExamplePartition_Divide() {
	shape := tensor.ShapeOf(16)
	src, err := layout.Partition{World: 2, Stride: 2}.Divide(shape)
	if err != nil {
		fmt.Println(err)
		return
	}
	dst, err := layout.Partition{}.Divide(shape)
	if err != nil {
		fmt.Println(err)
		return
	}
	plan, err := layout.NewPlanner(src, dst)
	if err != nil {
		fmt.Println(err)
		return
	}
	var moves layout.Moves
	if err := plan.Assign(0, layout.Sources{Ranks: []stepvan.Rank{6, 7}}, &moves); err != nil {
		fmt.Println(err)
		return
	}
	for i := range moves.Len() {
		v := moves.At(i)
		fmt.Println(v.Source, v.Src[0], v.Dst[0], v.Extent[0])
	}
	// Output:
	// 6 0 0 4
	// 7 0 4 4
	// 6 4 8 4
	// 7 4 12 4
}
