package modelfiles_test

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/stepvan/stepvan/examples/afd/modelfiles"
)

func ExampleFind() {
	_, err := modelfiles.Find("/no/such/directory")
	fmt.Println(errors.Is(err, fs.ErrNotExist))
	// Output: true
}
