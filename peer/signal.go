package peer

import (
	"context"

	"github.com/stepvan/stepvan/internal/link/progress"
)

// Signal is something that happens once, such as the note of a Put that a program expects. A goroutine that waits for
// it drives the node meanwhile, as one that waits for a [Handle] does. Any goroutine may call its methods.
type Signal struct {
	p     *Peer
	event progress.Event
}

// NewSignal makes a signal that has not happened.
func NewSignal(p *Peer) *Signal {
	return &Signal{p: p, event: progress.Event{Kind: progress.Answer}}
}

// Set has the signal happen, and wakes all that wait for it. Listeners of mail and notes may call it.
func (s *Signal) Set() { s.p.link.Engine().Set(&s.event) }

// Wait drives the node until the signal has happened. It returns an error that wraps ctx.Err() when ctx ends before,
// [stepvan.ErrClosed] when the node is closed, and why the cluster failed.
func (s *Signal) Wait(ctx context.Context) error { return s.p.link.Engine().Wait(ctx, &s.event) }
