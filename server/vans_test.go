package server_test

import (
	"errors"
	"testing"

	"github.com/stepvan/stepvan"
	. "github.com/stepvan/stepvan/internal/pairtest"
)

func forVans(t *testing.T, f func(t *testing.T, v Van)) { forEach(t, Vans(), f) }

func forEach(t *testing.T, vans []Van, f func(t *testing.T, v Van)) {
	for _, v := range vans {
		t.Run(v.Name, func(t *testing.T) { f(t, v) })
	}
}

func isBusy(err error) bool { return errors.Is(err, stepvan.ErrBusy) }
