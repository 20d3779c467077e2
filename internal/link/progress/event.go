package progress

import "sync/atomic"

// Event is something to wait for. The zero value is ready to use. It must not be copied.
type Event struct {
	state atomic.Uint32
	Kind  Kind // of the waits for it; constant
}

const (
	eventSet      = 1 << iota // it has happened
	eventParked               // a parked waiter waits for it
	eventSleeping             // the sleeping holder of the token waits for it
)

// IsSet reports whether the event has happened. Any goroutine.
func (ev *Event) IsSet() bool { return ev.state.Load()&eventSet != 0 }

// Reset makes the event wait for its next Set. Only while nobody waits for it.
func (ev *Event) Reset() { ev.state.Store(0) }

// await notes how somebody waits until ev is set. It returns false when ev is set already.
func (ev *Event) await(how uint32) bool { return ev.state.Or(how)&eventSet == 0 }
