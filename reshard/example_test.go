package reshard_test

import (
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/reshard"
	"github.com/stepvan/stepvan/tensor"
)

// Two trainers with half of the rows each send a matrix to an engine. The engine has all of it.
func ExampleNewPlanner() {
	var rosters [][]byte
	for rank := range stepvan.Rank(3) {
		roster := reshard.Roster{Rank: rank}
		if rank < 2 {
			half := reshard.Form{DType: tensor.BFloat16, Shape: tensor.ShapeOf(4, 6), Parallel: &reshard.Parallel{
				Divided: true, Groups: reshard.Groups{Tensor: []stepvan.Rank{0, 1}},
			}}
			roster.Sources = []reshard.Parameter{{Name: "linear.weight", Form: half}}
		} else {
			whole := reshard.Form{DType: tensor.BFloat16, Shape: tensor.ShapeOf(8, 6), Parallel: new(reshard.Parallel)}
			roster.Destinations = []reshard.Parameter{{Name: "linear.weight", Form: whole}}
		}
		b, err := roster.Append(nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		rosters = append(rosters, b)
	}
	planner, err := reshard.NewPlanner(rosters, reshard.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	plan, err := planner.Plan(2)
	if err != nil {
		fmt.Println(err)
		return
	}
	for i := range plan.Recvs.Len() {
		op := plan.Recvs.At(i)
		fmt.Println(plan.Destinations[op.Tensor].Name, "from", op.Peer, "at", op.Theirs[:op.Rank], "to", op.Mine[:op.Rank], "size", op.Extent[:op.Rank])
	}
	// Output:
	// linear.weight from 0 at [0 0] to [0 0] size [4 6]
	// linear.weight from 1 at [0 0] to [4 0] size [4 6]
}
