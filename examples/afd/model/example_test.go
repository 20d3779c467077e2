package model_test

import (
	"fmt"

	"github.com/stepvan/stepvan/examples/afd/model"
	"github.com/stepvan/stepvan/examples/afd/model/modeltest"
)

// A model whose feed-forward nets are cut in two, in one process.
func ExampleRun() {
	config := modeltest.Config()
	file, err := modeltest.File(config, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	attention, err := model.LoadAttention(config, file)
	if err != nil {
		fmt.Println(err)
		return
	}
	var slices []*model.FFNSlice
	for part := range 2 {
		slice, err := model.LoadFFN(config, file, part, 2)
		if err != nil {
			fmt.Println(err)
			return
		}
		slices = append(slices, slice)
	}
	batches, err := model.Pack([][]int32{{1, 5, 2}, {1, 5, 7, 2}, {1, 90, 2}}, 8)
	if err != nil {
		fmt.Println(err)
		return
	}
	embeddings, err := model.Run(attention, slices, batches)
	fmt.Println(len(embeddings), "embeddings of", len(embeddings[0]), "numbers:", err)
	// Output: 3 embeddings of 48 numbers: <nil>
}

func ExampleNearest() {
	corpus := []model.Embedding{{1, 0}, {0.6, 0.8}, {0, 1}}
	for _, m := range model.Nearest(corpus, model.Embedding{0, 1}, 2) {
		fmt.Printf("%d %.1f\n", m.Index, m.Cosine)
	}
	// Output:
	// 2 1.0
	// 1 0.8
}
