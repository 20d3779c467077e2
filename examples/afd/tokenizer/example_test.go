package tokenizer_test

import (
	"fmt"

	"github.com/stepvan/stepvan/examples/afd/tokenizer"
)

func ExampleTokenizer_Encode() {
	t, err := tokenizer.Open("testdata/small.json")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(t.Encode("Hello, World!")), "tokens with the two around them")
	// Output: 6 tokens with the two around them
}
