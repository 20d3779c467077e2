package bench

import (
	"context"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/internal/launch"
)

// interrupt ends the run in this process at the first signal, with the error that a
// run of processes has, until release is called.
func (o *Options) interrupt(cancel context.CancelCauseFunc) (release func()) {
	over := make(chan struct{})
	go func() {
		select {
		case s := <-o.Signals:
			number, _ := s.(unix.Signal)
			cancel(&launch.Interrupted{Signal: number})
		case <-over:
		}
	}()
	return func() { close(over) }
}
