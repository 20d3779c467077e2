package main

// #include "boundary.h"
import "C"

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"sync"
	"unsafe"

	"github.com/stepvan/stepvan/capi/internal/numbers"
	"github.com/stepvan/stepvan/peer"
	"github.com/stepvan/stepvan/tensor"
)

// group is a number from stepvan_group to stepvan_group_close.
type group struct {
	node *node
	name string
	live *peer.Group

	mu     sync.Mutex
	latest *collective
	recent recent
	ended  bool
}

// keptCollectives is how many operations of a group keep their numbers and their results.
const keptCollectives = 4

// goGroup implements
//
//	int32_t stepvan_group(uint64_t node, const char *name, const uint32_t *ranks, uint64_t count, uint64_t
//	    *group, stepvan_error *error);
//
//export goGroup
func goGroup(id cUint64, name *C.char, ranks *cUint32, count cUint64, number *cUint64, e *cError) cCode {
	return onPeer(id, e, func(n *node) error {
		if err := n.checkRunning(); err != nil {
			return err
		}
		if name == nil || number == nil || count > maxList || count > 0 && ranks == nil {
			return isNull("name, ranks and group")
		}
		g := &group{node: n, name: C.GoString(name), recent: recent{most: keptCollectives}}
		var err error
		if g.live, err = n.peer.Group(g.name, ranksOf(list[uint32](unsafe.Pointer(ranks), count))); err != nil {
			return err
		}
		id := groups.Put(g)
		if id == 0 {
			return tooMany("groups")
		}
		*number = cUint64(id)
		return nil
	})
}

// onGroup is half for a call on a group.
func onGroup(number cUint64, e *cError, f func(*group) error) cCode {
	return onMade(&groups, "group", number, e, f)
}

func (g *group) of() *node { return g.node }

// goGroupBarrier implements
//
//	int32_t stepvan_group_barrier(uint64_t group, uint64_t *handle, stepvan_error *error);
//
//export goGroupBarrier
func goGroupBarrier(number cUint64, handle *cUint64, e *cError) cCode {
	return onGroup(number, e, func(g *group) error {
		return g.begin("barrier", handle, func(ctx context.Context, _ *collective) error { return g.live.Barrier(ctx) })
	})
}

// goGroupAllGather implements
//
//	int32_t stepvan_group_all_gather(uint64_t group, const void *data, uint64_t bytes, uint64_t *handle,
//	    stepvan_error *error);
//
//export goGroupAllGather
func goGroupAllGather(number cUint64, data unsafe.Pointer, n cUint64, handle *cUint64, e *cError) cCode {
	return onGroup(number, e, func(g *group) error {
		if data == nil && n > 0 || !addressable(data, uint64(n)) {
			return invalid("data: %d bytes at %#x are not readable memory: give an address and a length", n, uintptr(data))
		}
		mine := bytes.Clone(list[byte](data, n))
		return g.begin("all_gather", handle, func(ctx context.Context, c *collective) (err error) {
			c.parts, err = g.live.AllGather(ctx, mine)
			return err
		})
	})
}

// goGroupBroadcast implements
//
//	int32_t stepvan_group_broadcast(uint64_t group, const stepvan_view *view, uint32_t root, uint64_t owner,
//	    uint64_t *handle, stepvan_error *error);
//
//export goGroupBroadcast
func goGroupBroadcast(number cUint64, view *C.stepvan_view, root cUint32, owner cUint64, handle *cUint64, e *cError) cCode {
	return onGroup(number, e, func(g *group) error {
		if view == nil {
			return isNull("view")
		}
		b := borrow(owner, g.node)
		v, err := b.view(view)
		if err != nil {
			return b.refuse(err)
		}
		return b.refuse(g.begin("broadcast", handle, func(ctx context.Context, _ *collective) error {
			defer b.end(true)
			return g.live.Broadcast(ctx, v, int(root))
		}))
	})
}

// goGroupReduce implements
//
//	int32_t stepvan_group_reduce(uint64_t group, const stepvan_view *view, const stepvan_view *into, uint32_t merge,
//	    uint32_t root, uint64_t owner, uint64_t *handle, stepvan_error *error);
//
//export goGroupReduce
func goGroupReduce(number cUint64, view, into *C.stepvan_view, merge, root cUint32, owner cUint64, handle *cUint64, e *cError) cCode {
	return onGroup(number, e, func(g *group) error {
		is := int(root) == g.live.Index()
		switch {
		case view == nil || into == nil && is:
			return isNull("view, and into at the root,")
		case merge > math.MaxUint8:
			return invalid("merge: there is no such merge (got %d): use the constants of stepvan_merge", merge)
		}
		b := borrow(owner, g.node)
		from, err := b.view(view)
		var to tensor.Strided
		if err == nil && is {
			to, err = b.view(into)
		}
		if err != nil {
			return b.refuse(err)
		}
		return b.refuse(g.begin("reduce", handle, func(ctx context.Context, _ *collective) error {
			defer b.end(true)
			return g.live.Reduce(ctx, from, to, peer.Merge(merge), int(root))
		}))
	})
}

// begin begins an operation of the group. An earlier one loses its number, and its result.
func (g *group) begin(op string, handle *cUint64, f func(context.Context, *collective) error) error {
	if handle == nil {
		return isNull("handle")
	}
	return g.claim(op, func() (*collective, error) {
		c := newCollective(op+" of group "+g.name, -1, g.node)
		id := g.recent.add(c)
		if id == 0 {
			c.stop()
			return nil, tooMany("operations of groups")
		}
		*handle = cUint64(id)
		c.start(f)
		return c, nil
	})
}

// claim begins an operation while no other one uses the group.
func (g *group) claim(op string, begin func() (*collective, error)) error {
	if err := g.node.checkRunning(); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.ended:
		return &coded{codeStale, fmt.Errorf("group %s was closed", g.name)}
	case g.latest != nil && !g.latest.done():
		return &coded{codeBusy, fmt.Errorf("%s of group %s: another operation of the group is not over: wait for its handle first", op, g.name)}
	}
	c, err := begin()
	if err == nil {
		g.latest = c
	}
	return err
}

// goGathered implements
//
//	int32_t stepvan_gathered(uint64_t node, uint64_t handle, uint64_t member, void *data, uint64_t capacity,
//	    uint64_t *bytes, stepvan_error *error);
//
//export goGathered
func goGathered(id, handle, member cUint64, data unsafe.Pointer, capacity cUint64, n *cUint64, e *cError) cCode {
	return onPeer(id, e, func(live *node) error {
		c, ok := collectives.Get(numbers.ID(handle))
		switch {
		case n == nil:
			return isNull("bytes")
		case !ok || c.node != live:
			return missing(&collectives, "all-gather of this node", "has ended, and its result is gone", handle)
		case !c.done():
			return &coded{codeBusy, fmt.Errorf("%s: it is not over: wait for its handle first", c.op)}
		case c.err != nil:
			return c.err
		case uint64(member) >= uint64(len(c.parts)):
			return invalid("member: %s has no such result (got %d, want less than %d)", c.op, member, len(c.parts))
		}
		to, err := array[byte](data, capacity, n)
		if err != nil {
			return err
		}
		part := c.parts[member]
		if *n = cUint64(len(part)); *n > capacity {
			return tooSmall(len(part), capacity)
		}
		copy(to, part)
		return nil
	})
}

// goGroupClose implements
//
//	int32_t stepvan_group_close(uint64_t group, stepvan_error *error);
//
//export goGroupClose
func goGroupClose(number cUint64, e *cError) cCode {
	return half(e, func() error {
		g, ok := groups.Take(numbers.ID(number))
		if !ok {
			return missing(&groups, "group", "was closed", number)
		}
		g.end()
		return nil
	})
}

// goGroupForget implements
//
//	int32_t stepvan_group_forget(uint64_t group, stepvan_error *error);
//
//export goGroupForget
func goGroupForget(number cUint64, e *cError) cCode {
	return half(e, func() error {
		g, ok := groups.Take(numbers.ID(number))
		if !ok {
			return missing(&groups, "group", "was closed", number)
		}
		g.end()
		g.live.Forget()
		return nil
	})
}

// end ends the group. An operation that is not over fails, and the other members are told.
func (g *group) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended = true
	if g.latest != nil {
		g.latest.stop()
	}
	g.recent.end()
}
