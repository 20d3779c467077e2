package shmvan

import (
	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

// refuseAll is a Placer that takes nothing.
type refuseAll struct{}

func (refuseAll) Place(_ van.Endpoint, _ *wire.Header, _ []byte, dst [][]byte) ([][]byte, error) {
	return dst, stepvan.ErrNotSupported
}
