package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/internal/launch"
)

// settingsOf reads the environment of a command that is a node with a role. DMLC_ROLE may be missing. The error for
// another role begins with what the command is.
func settingsOf(role stepvan.Role, environ []string, warnTo io.Writer, what string) (config.Settings, error) {
	given := config.Lookup(environ)
	s, warnings, err := config.FromEnv(func(name string) (string, bool) {
		value, ok := given(name)
		if name == "DMLC_ROLE" && value == "" {
			return string(role), true
		}
		return value, ok
	}, environ)
	for _, w := range warnings {
		fmt.Fprintf(warnTo, "warning: %v\n", w)
	}
	if err == nil && s.Role != role {
		err = &stepvan.ConfigError{Key: "DMLC_ROLE", Value: string(s.Role), Reason: what + ": unset it, or start the program of that role"}
	}
	return s, err
}

// untilSignal runs f with a context that a signal ends, and returns the signal as the error then.
func untilSignal(ctx context.Context, f func(context.Context) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM)
	defer signal.Stop(signals)
	go func() {
		select {
		case got := <-signals:
			number, _ := got.(unix.Signal)
			stop(&launch.Interrupted{Signal: number})
		case <-ctx.Done():
		}
	}()
	err := f(ctx)
	var interrupted *launch.Interrupted
	if errors.As(context.Cause(ctx), &interrupted) {
		return interrupted
	}
	return err
}
