package worker

import (
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/reuse"
	"github.com/stepvan/stepvan/tensor"
)

// keyState is a push key, and the exchange whose push of it is unanswered.
type keyState struct{ user *activeExchange }

// keyTable knows which push keys are busy. Keys that are not busy stay in the map, since a look-up is a quarter of
// the cost of inserting and deleting. Worker.mu guards it.
type keyTable struct {
	states map[tensor.Key]*keyState
	busy   int
	unused reuse.List[keyState]
}

// maxIdleKeys is how many keys that are not busy may stay.
const maxIdleKeys = 4096

// claim marks the push keys of x busy, all or none.
func (t *keyTable) claim(x *activeExchange) error {
	for _, k := range x.pushKeys {
		s := t.states[k]
		if s == nil {
			s = t.add(k)
		}
		if user := s.user; user != nil {
			t.release(x)
			if user == x {
				return duplicateKey("push", k)
			}
			return user.busyError(k)
		}
		s.user = x
		x.keys = append(x.keys, s)
		t.busy++
	}
	return nil
}

// add does not allocate in the steady state, even when no key is ever used twice.
func (t *keyTable) add(k tensor.Key) *keyState {
	if len(t.states) >= maxIdleKeys+t.busy {
		for k, s := range t.states {
			if s.user == nil {
				delete(t.states, k)
				t.unused.Put(s)
			}
		}
	}
	s := t.unused.Take()
	t.states[k] = s
	return s
}

// release frees the push keys of x.
func (t *keyTable) release(x *activeExchange) {
	for _, s := range x.keys {
		s.user = nil
	}
	t.busy -= len(x.keys)
	x.keys = x.keys[:0]
}

// busyError names the server that has not answered the last push of k, which x made.
func (x *activeExchange) busyError(k tensor.Key) error {
	fault := &stepvan.OpError{Op: "push_pull"}
	for _, r := range x.requests {
		if r.state&unanswered != 0 {
			fault.Peer = r.server.name
			break
		}
	}
	hint := "wait for its handle"
	if x.state.completed() {
		hint = "its handle has failed, so try again when this server has answered"
	}
	fault.Err = fmt.Errorf("key %d: its last push has not been answered: %s, or use another key: %w", k, hint, stepvan.ErrBusy)
	return fault
}
