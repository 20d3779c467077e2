package worker

import (
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/link/handles"
	"github.com/stepvan/stepvan/tensor"
)

// call is a request from PushPull until the last server has answered or is lost.
// Calls are recycled: the fields are reset by Worker.retire. Until submitted the caller's
// goroutine owns it, afterwards Worker.mu guards it.
type call struct {
	next     *call // in the list of free ones
	rec      *handles.Record[result]
	label    string
	push     []tensor.Tensor
	pushKeys []tensor.Key
	pull     []tensor.Tensor
	pullKeys []tensor.Key
	variable []bool
	holds    []*hold  // of the push keys
	sums     []uint64 // of the pushes, with Options.CheckBorrowed
	retained int      // the first so many tensors are held, pushes before pulls

	parts     []*part
	sessions  []*link.Session // of the parts, for SendAll
	outbounds []*link.Outbound
	last      *part // that was answered last

	broadcast  bool
	submitted  bool
	finished   bool  // the handle has completed
	err        error // the first failure
	need       int   // events until success: each server has received its part, and has answered it
	undone     int   // parts whose message the link still reads
	unanswered int   // parts whose server has neither answered nor is lost: the push keys are busy
	lent       int   // parts whose server may reach tensors
	reading    int   // parts that a response which is not whole yet refers to
	placing    int   // of these, those whose response is read into the pull tensors
	pending    int   // events until the call is over, the submission itself among them
	start      int64
}

// load copies the request, so that its slices are the caller's again.
func (c *call) load(r *Exchange) {
	c.label = r.Label
	c.push = append(c.push[:0], r.Push...)
	c.pushKeys = append(c.pushKeys[:0], r.PushKeys...)
	c.pull = append(c.pull[:0], r.Pull...)
	c.pullKeys = append(c.pullKeys[:0], r.PullKeys...)
	c.variable = append(c.variable[:0], r.Variable...)
}

// retain holds all tensors, or none of them.
func (c *call) retain() error {
	for i := range c.push {
		if err := c.push[i].Retain(); err != nil {
			c.release()
			return tensorFault("push", i, c.pushKeys[i], err)
		}
		c.retained++
	}
	for i := range c.pull {
		if err := c.pull[i].Retain(); err != nil {
			c.release()
			return tensorFault("pull", i, c.pullKeys[i], err)
		}
		c.retained++
	}
	return nil
}

// release gives back what retain holds, and lets go of the memory.
func (c *call) release() {
	for i := range c.push[:min(c.retained, len(c.push))] {
		c.push[i].Release()
	}
	for i := range c.pull[:max(0, c.retained-len(c.push))] {
		c.pull[i].Release()
	}
	c.retained = 0
}

func tensorFault(what string, i int, k tensor.Key, err error) error {
	return fmt.Errorf("push_pull: %s tensor %d (key %d) cannot be used: %w", what, i, k, err)
}

// fail notes the first failure.
func (c *call) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

// hold is a push key, and the call whose push of it is unanswered. Holds of keys that are not busy stay in
// the map, since a look-up is a quarter of the cost of inserting and deleting.
type hold struct{ user *call }

// maxIdle is how many keys that are not busy may stay.
const maxIdle = 4096

// claim marks the push keys busy, all or none. Under Worker.mu.
func (w *Worker) claim(c *call) error {
	for _, k := range c.pushKeys {
		h := w.keys[k]
		if h == nil {
			h = w.newHold(k)
		}
		if h.user != nil {
			other := h.user
			w.unclaim(c)
			if other == c {
				return twice(k)
			}
			return other.busy(k)
		}
		h.user = c
		c.holds = append(c.holds, h)
		w.busy++
	}
	return nil
}

// newHold adds a key. In the steady state it does not allocate, even when every key is a new one.
func (w *Worker) newHold(k tensor.Key) *hold {
	if len(w.keys) >= maxIdle+w.busy {
		for k, h := range w.keys {
			if h.user == nil {
				delete(w.keys, k)
				w.freeHolds = append(w.freeHolds, h)
			}
		}
	}
	var h *hold
	if n := len(w.freeHolds); n > 0 {
		h, w.freeHolds = w.freeHolds[n-1], w.freeHolds[:n-1]
	} else {
		h = new(hold)
	}
	w.keys[k] = h
	return h
}

// busy says whose answer to the last push of k is still to come. Under Worker.mu.
func (c *call) busy(k tensor.Key) error {
	fault := &stepvan.OpError{Op: "push_pull"}
	for _, p := range c.parts {
		if !p.answered {
			fault.Peer = p.server.name
			break
		}
	}
	hint := "wait for its handle"
	if c.finished {
		hint = "its handle has failed, so try again when that server has answered"
	}
	fault.Err = fmt.Errorf("key %d: its last push has not been answered; %s, or use another key: %w", k, hint, stepvan.ErrBusy)
	return fault
}

func (w *Worker) unclaim(c *call) {
	for _, h := range c.holds {
		h.user = nil
	}
	w.busy -= len(c.holds)
	c.holds = c.holds[:0]
}
