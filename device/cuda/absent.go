//go:build !cgo

package cuda

import (
	"fmt"

	"github.com/stepvan/stepvan"
)

// Use returns an error: the driver needs cgo.
func Use() error {
	return fmt.Errorf("cuda: it is not in this build, which was made without cgo: build with CGO_ENABLED=1: %w", stepvan.ErrNotSupported)
}
