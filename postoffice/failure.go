package postoffice

import (
	"context"
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
)

// Kinds of failure.
const (
	failRefused = "refused"
	failTimeout = "timeout"
	failLost    = "lost" // an instance died, or left while others needed it
	failInvalid = "invalid"
	failClosed  = "closed"
)

// failure is an error on its way from the scheduler to an instance.
type failure struct {
	Kind string `json:"kind"`
	Node string `json:"node,omitempty"` // the instance that it is about, for people; "": the scheduler
	Text string `json:"text"`           // what is wrong and what to do
}

func (f *failure) check() error {
	f.Node, f.Text = printable(f.Node, maxHost), printable(f.Text, maxText)
	return nil
}

// err is the failure as the error of an operation at the node; scheduler names the one that reported it.
func (f failure) err(operation, scheduler string) error {
	peer := f.Node
	if peer == "" {
		peer = scheduler
	}
	err := fmt.Errorf("%w: %s", f.sentinel(), f.Text)
	if f.Kind == failTimeout {
		err = errs.Late(f.Text, f.sentinel()) // it says for how long, and what for
	}
	return &stepvan.OpError{Op: operation, Peer: peer, Err: err}
}

func (f failure) sentinel() error {
	switch f.Kind {
	case failTimeout:
		return context.DeadlineExceeded
	case failLost:
		return stepvan.ErrPeerLost
	case failInvalid:
		return stepvan.ErrInvalid
	case failClosed:
		return stepvan.ErrClosed
	}
	return stepvan.ErrRemote
}
