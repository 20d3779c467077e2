package worker

import (
	"fmt"
	"slices"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/tensor"
)

// orphans are exchanges that have failed while servers that live may still use their memory. A handle that fails
// completes at once, so no other exchange gets that memory meanwhile, unless both only read it. Worker.mu guards the
// list.
type orphans struct{ list []*activeExchange }

func (o *orphans) add(x *activeExchange) { o.list = append(o.list, x) }

// remove is called for every exchange that has failed, whether it is in the list or not.
func (o *orphans) remove(x *activeExchange) {
	if i := slices.Index(o.list, x); i >= 0 {
		o.list = slices.Delete(o.list, i, i+1)
	}
}

// check refuses x when a server may still read, for an orphan, what x has servers write, or write what x uses.
// Budget: one comparison without orphans.
func (o *orphans) check(x *activeExchange) error {
	for _, old := range o.list {
		for _, r := range old.requests {
			if err := r.checkUse(x); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkUse refuses x when the server of r may still use memory of x in a way that x does not bear.
func (r *request) checkUse(x *activeExchange) error {
	for i := range x.push {
		if r.mayWrite(&x.push[i]) {
			return r.inUseError("push", i, x.pushKeys[i], "write to")
		}
	}
	for i := range x.pull {
		switch t := &x.pull[i]; {
		case r.mayWrite(t):
			return r.inUseError("pull", i, x.pullKeys[i], "write to")
		case r.mayRead(t):
			return r.inUseError("pull", i, x.pullKeys[i], "read")
		}
	}
	return nil
}

// mayWrite reports whether the server of r may still write to memory of t.
func (r *request) mayWrite(t *tensor.Tensor) bool {
	for j, i := range r.pulls {
		if r.lendsPull(j) && overlap(t, r.exchange.lentPull(i)) {
			return true
		}
	}
	return false
}

// mayRead reports whether the link or the server of r may still read memory of t.
func (r *request) mayRead(t *tensor.Tensor) bool {
	for j, i := range r.pushes {
		inUse := r.state&unacknowledged != 0 || r.state&lentOut != 0 && r.plan.pushes[j].inPlace && !r.plan.pushes[j].saved
		if inUse && overlap(t, &r.exchange.push[i]) {
			return true
		}
	}
	return false
}

// inUseError refuses tensor i of another exchange.
func (r *request) inUseError(kind string, i int, k tensor.Key, does string) error {
	when := "the server has answered that exchange"
	switch {
	case r.server.lost != nil:
		when = "the process of the server has released the memory or ended (the worker has lost that server, but its process still runs)"
	case r.state&lentOut == 0:
		when = "the server has received that exchange"
	}
	return &stepvan.OpError{Op: "push_pull", Van: r.server.session.Van(), Peer: r.server.name, Err: fmt.Errorf(
		"%s tensor %d (key %d): it shares memory with a failed exchange, and this server may still %s it: use other memory, or try again when %s: %w",
		kind, i, k, does, when, stepvan.ErrBusy)}
}
