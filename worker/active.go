package worker

import (
	"fmt"

	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/link/handles"
	"github.com/stepvan/stepvan/internal/reuse"
	"github.com/stepvan/stepvan/internal/slots"
	"github.com/stepvan/stepvan/tensor"
)

// activeExchange is an exchange from Do until no server answers it and none reaches its memory. It is recycled after
// that. Worker.mu guards it.
type activeExchange struct {
	tensorLists

	record    *handles.Record[result] // nil once the handle has completed
	label     string
	broadcast bool
	keys      []*keyState // of the pushes
	checksums []uint64    // of the pushes, with Options.CheckBorrowed
	saved     []savedPush // of the pushes, those that are lent as copies
	staged    *staged     // of an exchange with tensors of an accelerator; nil otherwise
	start     int64

	requests []*request
	sessions []*link.Session // of the requests, for SendAll
	messages []*link.Outbound
	last     *request // the last that was answered

	state exchangeState
	requestCounts
	err error // the first failure
}

// tensorLists are the tensors of an exchange. They are copies, so that the slices of an Exchange are its caller's
// again.
type tensorLists struct {
	push     []tensor.Tensor
	pushKeys []tensor.Key
	pull     []tensor.Tensor
	pullKeys []tensor.Key
	variable []bool
	retained int // the first so many tensors are held, pushes before pulls
}

func (l *tensorLists) load(e *Exchange) {
	l.push = append(l.push[:0], e.Push...)
	l.pushKeys = append(l.pushKeys[:0], e.PushKeys...)
	l.pull = append(l.pull[:0], e.Pull...)
	l.pullKeys = append(l.pullKeys[:0], e.PullKeys...)
	l.variable = append(l.variable[:0], e.Variable...)
}

// retain holds all tensors, or none of them.
func (l *tensorLists) retain() error {
	for i := range l.push {
		if err := l.push[i].Retain(); err != nil {
			l.release()
			return tensorError("push", i, l.pushKeys[i], err)
		}
		l.retained++
	}
	for i := range l.pull {
		if err := l.pull[i].Retain(); err != nil {
			l.release()
			return tensorError("pull", i, l.pullKeys[i], err)
		}
		l.retained++
	}
	return nil
}

// release ends what retain has begun.
func (l *tensorLists) release() {
	for i := range l.push[:min(l.retained, len(l.push))] {
		l.push[i].Release()
	}
	for i := range l.pull[:max(0, l.retained-len(l.push))] {
		l.pull[i].Release()
	}
	l.retained = 0
}

func tensorError(kind string, i int, k tensor.Key, err error) error {
	return fmt.Errorf("push_pull: %s tensor %d (key %d): it cannot be used: %w", kind, i, k, err)
}

// fail notes the first failure.
func (x *activeExchange) fail(err error) {
	if x.err == nil {
		x.err = err
	}
}

// exchangeTable holds the exchanges in flight and their requests. Worker.mu guards it.
type exchangeTable struct {
	completer   link.Completer // of the requests' messages
	outstanding int
	exchanges   reuse.List[activeExchange]
	requests    slots.Table[request]
	ended       []*activeExchange // that tidy readies for their next use
}

// newExchange returns an exchange without requests.
func (t *exchangeTable) newExchange() *activeExchange {
	t.outstanding++
	return t.exchanges.Take()
}

// addRequest adds a request for v to x.
func (t *exchangeTable) addRequest(x *activeExchange, v *serverPeer) *request {
	id, r := t.requests.Take()
	if r.message.User == nil { // the first use of the slot
		r.message = link.Outbound{Channel: link.ChannelRequest, Completer: t.completer, User: r, Timed: true}
	}
	r.id, r.exchange, r.server = id, x, v
	x.requests = append(x.requests, r)
	x.sessions = append(x.sessions, v.session)
	x.messages = append(x.messages, &r.message)
	return r
}

// requestFor returns the request of x to v.
func (t *exchangeTable) requestFor(x *activeExchange, v *serverPeer) *request {
	for _, r := range x.requests {
		if r.server == v {
			return r
		}
	}
	return t.addRequest(x, v)
}

// end takes back x, whose tensors are released and whose keys are free, and its requests. What x refers to may go at
// once. The rest waits for tidy.
func (t *exchangeTable) end(x *activeExchange) {
	x.push, x.pull = reuse.Slice(x.push), reuse.Slice(x.pull)
	for _, r := range x.requests {
		r.payload = reuse.Slice(r.payload)
	}
	x.err, x.label = nil, ""
	t.outstanding--
	t.ended = append(t.ended, x)
}

// tidy readies what has ended for its next use. It runs behind the sending of the next exchange, when the servers work.
// The time before a handle completes would add to the latency.
func (t *exchangeTable) tidy() {
	for _, x := range t.ended {
		for _, r := range x.requests {
			r.reset()
			t.requests.Free(r.id)
		}
		x.requests, x.sessions, x.messages, x.checksums = x.requests[:0], x.sessions[:0], x.messages[:0], x.checksums[:0]
		x.record, x.last, x.broadcast, x.staged = nil, nil, false, nil
		x.state, x.requestCounts = unsent, requestCounts{}
		t.exchanges.Put(x)
	}
	t.ended = t.ended[:0]
}
