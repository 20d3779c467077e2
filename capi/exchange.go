package main

// #include "boundary.h"
import "C"

import (
	"sync"
	"unsafe"

	"github.com/stepvan/stepvan/internal/text"
	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/tensor"
)

// goPushPull implements
//
//	int32_t stepvan_push_pull(uint64_t node, const stepvan_exchange *exchange, uint64_t *handle,
//	    stepvan_error *error);
//
//export goPushPull
func goPushPull(id cUint64, x *C.stepvan_exchange, handle *cUint64, e *cError) cCode {
	return onWorker(id, e, func(n *node) error { return n.pushPull(x, 0, handle) })
}

func (n *node) pushPull(x *cExchange, stream cUint64, handle *cUint64) error {
	if err := n.checkRunning(); err != nil {
		return err
	}
	if x == nil || handle == nil {
		return isNull("exchange and handle")
	}
	k, live := newCall(x.owner), n.live.Load()
	k.storages = live.Storages()
	err := k.load(x)
	if err == nil {
		k.exchange.Stream.Handle = uintptr(stream)
		var h ps.Handle
		if h, err = live.Do(&k.exchange); err == nil {
			*handle = cUint64(h.ID())
		}
	}
	k.end(err == nil)
	return err
}

// load fills in the exchange. The keys stay in C's memory: ps reads them during the call only.
func (k *call) load(c *cExchange) (err error) {
	x := &k.exchange
	if err := checkArrays(c); err != nil {
		return err
	}
	if k.tensors, err = k.add(k.tensors, list[cTensor](unsafe.Pointer(c.push), c.pushes), nil); err != nil {
		return err
	}
	pull := list[cTensor](unsafe.Pointer(c.pull), c.pulls)
	if k.pull, err = k.add(k.pull, pull, nil); err != nil {
		return err
	}
	x.Push, x.Pull = k.tensors, k.pull
	x.PushKeys = list[tensor.Key](unsafe.Pointer(c.push_keys), c.pushes)
	x.PullKeys = list[tensor.Key](unsafe.Pointer(c.pull_keys), c.pulls)
	x.Variable = k.variableMarks(pull)
	x.Routing, x.PairWithPush = routings[c.routing], c.pair_with_push != 0
	k.setServers(c)
	if c.label != nil {
		x.Label, err = labels.text(c.label)
	}
	return err
}

// routings has the routing for each number of stepvan_routing.
var routings = [...]ps.Routing{ps.DefaultRouting, ps.Broadcast, ps.ByKey, ps.Named}

func checkArrays(c *cExchange) error {
	switch {
	case c.pushes > maxTensors || c.pulls > maxTensors || c.push_to_count > maxTensors || c.pull_to_count > maxTensors:
		return invalid("too many tensors or servers (got %d pushes and %d pulls, want at most %d of each)", c.pushes, c.pulls, maxTensors)
	case c.pushes > 0 && (c.push == nil || c.push_keys == nil):
		return isNull("push and push_keys")
	case c.pulls > 0 && (c.pull == nil || c.pull_keys == nil):
		return isNull("pull and pull_keys")
	case c.push_to_count > 0 && c.push_to == nil || c.pull_to_count > 0 && c.pull_to == nil:
		return isNull("push_to and pull_to")
	case uint64(c.routing) >= uint64(len(routings)):
		return invalid("%d is not a routing: give one of stepvan_routing", c.routing)
	}
	return nil
}

// variableMarks tells which pulls are variable, nil for none.
func (k *call) variableMarks(pull []cTensor) []bool {
	some := false
	for i := range pull {
		some = some || pull[i].flags&flagVariable != 0
	}
	if !some {
		return nil
	}
	for i := range pull {
		k.variable = append(k.variable, pull[i].flags&flagVariable != 0)
	}
	return k.variable
}

// setServers sets the named servers.
func (k *call) setServers(c *cExchange) {
	for _, r := range list[cUint32](unsafe.Pointer(c.push_to), c.push_to_count) {
		k.ranks = append(k.ranks, ps.Rank(r))
	}
	for _, r := range list[cUint32](unsafe.Pointer(c.pull_to), c.pull_to_count) {
		k.ranks = append(k.ranks, ps.Rank(r))
	}
	pushes := int(c.push_to_count)
	k.exchange.PushTo, k.exchange.PullTo = k.ranks[:pushes:pushes], k.ranks[pushes:]
}

// labels are the texts of exchanges, which outlive the ring of traces.
var labels = interned{known: map[string]string{}}

type interned struct {
	mu    sync.Mutex
	known map[string]string
}

const maxLabels = 4096

// text returns the one copy of a text. 0 allocations for one that is known.
func (t *interned) text(c *C.char) (string, error) {
	b := unsafe.Slice((*byte)(unsafe.Pointer(c)), C.strlen(c))
	t.mu.Lock()
	defer t.mu.Unlock()
	if s, ok := t.known[string(b)]; ok {
		return s, nil
	}
	if len(t.known) == maxLabels {
		return "", invalid("label %q: too many others are in use (want at most %d): use labels again", text.Cut(string(b)), maxLabels)
	}
	s := string(b)
	t.known[s] = s
	return s, nil
}
