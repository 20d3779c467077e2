package ps

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
)

// Each event in each state: what operations return, whether a server still answers, and whether the node can work no
// more.
func TestLifecycle(t *testing.T) {
	loss := &stepvan.OpError{Op: "cluster", Peer: "worker 3", Err: stepvan.ErrPeerLost}
	events := map[string]func(*lifecycle){
		"lose":   func(l *lifecycle) { l.failed.set(loss) },
		"panic":  func(l *lifecycle) { l.breakDown(&stepvan.InternalError{Panic: "first"}) },
		"again":  func(l *lifecycle) { require.False(t, l.breakDown(&stepvan.InternalError{Panic: "second"})) },
		"stop":   func(l *lifecycle) { require.True(t, l.beginStop()) },
		"stop 2": func(l *lifecycle) { require.False(t, l.beginStop()) },
		"finish": func(l *lifecycle) { l.finishStop() },
	}
	for _, c := range []struct {
		events   []string
		usable   error // what operations of a worker return
		failure  error // what ended the node or its cluster
		stopping bool
		serving  bool
		ended    bool
	}{
		{nil, nil, nil, false, true, false},
		{[]string{"lose"}, stepvan.ErrPeerLost, stepvan.ErrPeerLost, false, true, false},
		{[]string{"lose", "panic"}, errPanic, errPanic, false, true, false},
		{[]string{"panic", "lose"}, errPanic, errPanic, false, true, false},
		{[]string{"panic", "again"}, errPanic, errPanic, false, true, false},
		{[]string{"stop"}, stepvan.ErrClosed, nil, true, true, false},
		{[]string{"stop", "stop 2"}, stepvan.ErrClosed, nil, true, true, false},
		{[]string{"stop", "lose"}, stepvan.ErrClosed, stepvan.ErrPeerLost, true, true, false},
		{[]string{"stop", "panic"}, stepvan.ErrClosed, errPanic, true, true, false},
		{[]string{"stop", "finish"}, stepvan.ErrClosed, nil, true, false, true},
		{[]string{"stop", "finish", "stop 2"}, stepvan.ErrClosed, nil, true, false, true},
		{[]string{"lose", "stop", "finish"}, stepvan.ErrClosed, stepvan.ErrPeerLost, true, false, true},
	} {
		l := newLifecycle()
		for _, e := range c.events {
			events[e](l)
		}
		for _, x := range []struct{ got, want error }{{l.usable("op"), c.usable}, {l.failure("op"), c.failure}} {
			if errors.Is(x.want, errPanic) {
				var e *stepvan.InternalError
				require.ErrorAs(t, x.got, &e, "%q", c.events)
				require.Equal(t, "first", e.Panic)
				continue
			}
			require.ErrorIs(t, x.got, x.want, "%q", c.events)
		}
		require.Equal(t, c.stopping, l.stopping(), "%q", c.events)
		require.Equal(t, c.serving, l.serving(), "%q", c.events)
		require.Equal(t, c.ended, l.ended.Err() != nil, "%q", c.events)
		require.Equal(t, c.ended, l.stopped.Err() != nil, "%q", c.events)
	}
}

var errPanic = errors.New("an InternalError")
