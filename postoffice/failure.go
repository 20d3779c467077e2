package postoffice

import (
	"cmp"
	"context"
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/text"
)

// Kinds of failure.
const (
	failRefused = "refused"
	failTimeout = "timeout"
	failLost    = "lost" // an instance died, or left while others needed it
	failClosed  = "closed"
)

// failure is an error on its way from the scheduler to an instance.
type failure struct {
	Kind string `json:"kind"`
	Node string `json:"node,omitempty"` // the instance that it is about, for people; "": the scheduler
	Text string `json:"text"`           // what is wrong and what to do
}

func (f *failure) check() error {
	f.Node, f.Text = text.Line(f.Node, maxHost), text.Line(f.Text, maxText)
	return nil
}

// err is the failure as the error of an operation at the node; scheduler names the one that reported it.
func (f failure) err(operation, scheduler string) error {
	return &stepvan.OpError{Op: operation, Peer: cmp.Or(f.Node, scheduler), Err: f.cause()}
}

// cause is the failure without the operation.
func (f failure) cause() error {
	if f.Kind == failTimeout {
		return errs.Late(f.Text, f.sentinel()) // it says for how long, and what for
	}
	return fmt.Errorf("%w: %s", f.sentinel(), f.Text)
}

func (f failure) sentinel() error {
	switch f.Kind {
	case failTimeout:
		return context.DeadlineExceeded
	case failLost:
		return stepvan.ErrPeerLost
	case failClosed:
		return stepvan.ErrClosed
	}
	return stepvan.ErrRemote
}
