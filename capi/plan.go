package main

// #include "boundary.h"
import "C"

import (
	"context"
	"fmt"
	"sync"
	"time"
	"unsafe"

	"github.com/stepvan/stepvan/capi/internal/numbers"
	"github.com/stepvan/stepvan/layout"
	"github.com/stepvan/stepvan/peer"
	"github.com/stepvan/stepvan/tensor"
)

// plan is a number from stepvan_plan to stepvan_plan_close.
type plan struct {
	node      *node
	name      string
	agreement *collective
	live      *peer.Plan // set when the agreement is over, nil if it has failed
	closing   sync.Mutex
}

// goPlan implements
//
//	int32_t stepvan_plan(uint64_t node, const char *name, const stepvan_move *sends, uint64_t send_count, const
//	    stepvan_move *recvs, uint64_t recv_count, uint64_t owner, int64_t timeout_ns, uint64_t *plan,
//	    stepvan_error *error);
//
//export goPlan
func goPlan(id cUint64, name *C.char, sends *C.stepvan_move, sendCount cUint64, recvs *C.stepvan_move, recvCount, owner cUint64, limit cInt64, number *cUint64, e *cError) cCode {
	return goPlanWith(id, name, sends, sendCount, recvs, recvCount, 0, owner, limit, number, e)
}

// goPlanWith implements
//
//	int32_t stepvan_plan_with(uint64_t node, const char *name, const stepvan_move *sends, uint64_t send_count, const
//	    stepvan_move *recvs, uint64_t recv_count, uint32_t flags, uint64_t owner, int64_t timeout_ns, uint64_t *plan,
//	    stepvan_error *error);
//
//export goPlanWith
func goPlanWith(id cUint64, name *C.char, sends *C.stepvan_move, sendCount cUint64, recvs *C.stepvan_move, recvCount cUint64, flags cUint32, owner cUint64, limit cInt64, number *cUint64, e *cError) cCode {
	return onPeer(id, e, func(n *node) error {
		if err := n.checkRunning(); err != nil {
			return err
		}
		if err := checkLists(name, number, unsafe.Pointer(sends), sendCount, unsafe.Pointer(recvs), recvCount); err != nil {
			return err
		}
		options, err := planOptions(flags)
		if err != nil {
			return err
		}
		d := newDraft(C.GoString(name), owner, n)
		out, err := d.moves("sends", list[cMove](unsafe.Pointer(sends), sendCount))
		if err != nil {
			return d.refuse(err)
		}
		in, err := d.moves("recvs", list[cMove](unsafe.Pointer(recvs), recvCount))
		if err != nil {
			return d.refuse(err)
		}
		_, err = d.begin(duration(limit), number, func(ctx context.Context) (*peer.Plan, error) { return n.peer.PlanWith(ctx, d.name, out, in, options) })
		return d.refuse(err)
	})
}

// goMatch implements
//
//	int32_t stepvan_match(uint64_t group, const char *name, const stepvan_named *sends, uint64_t send_count,
//	    const stepvan_named *recvs, uint64_t recv_count, uint64_t owner, int64_t timeout_ns, uint64_t *plan,
//	    stepvan_error *error);
//
//export goMatch
func goMatch(number cUint64, name *C.char, sends *C.stepvan_named, sendCount cUint64, recvs *C.stepvan_named, recvCount, owner cUint64, limit cInt64, plan *cUint64, e *cError) cCode {
	return goMatchWith(number, name, sends, sendCount, recvs, recvCount, 0, owner, limit, plan, e)
}

// goMatchWith implements
//
//	int32_t stepvan_match_with(uint64_t group, const char *name, const stepvan_named *sends, uint64_t send_count,
//	    const stepvan_named *recvs, uint64_t recv_count, uint32_t flags, uint64_t owner, int64_t timeout_ns,
//	    uint64_t *plan, stepvan_error *error);
//
//export goMatchWith
func goMatchWith(number cUint64, name *C.char, sends *C.stepvan_named, sendCount cUint64, recvs *C.stepvan_named, recvCount cUint64, flags cUint32, owner cUint64, limit cInt64, plan *cUint64, e *cError) cCode {
	return onGroup(number, e, func(g *group) error {
		if err := checkLists(name, plan, unsafe.Pointer(sends), sendCount, unsafe.Pointer(recvs), recvCount); err != nil {
			return err
		}
		options, err := planOptions(flags)
		if err != nil {
			return err
		}
		d := newDraft(C.GoString(name), owner, g.node)
		out, err := d.named("sends", list[cNamed](unsafe.Pointer(sends), sendCount))
		if err != nil {
			return d.refuse(err)
		}
		in, err := d.named("recvs", list[cNamed](unsafe.Pointer(recvs), recvCount))
		if err != nil {
			return d.refuse(err)
		}
		return d.refuse(g.claim("match", func() (*collective, error) {
			return d.begin(duration(limit), plan, func(ctx context.Context) (*peer.Plan, error) { return g.live.MatchWith(ctx, d.name, out, in, options) })
		}))
	})
}

// checkLists refuses arguments of a plan that cannot be right.
func checkLists(name *C.char, plan *cUint64, sends unsafe.Pointer, sendCount cUint64, recvs unsafe.Pointer, recvCount cUint64) error {
	switch {
	case name == nil || plan == nil:
		return isNull("name and plan")
	case sendCount > maxList || recvCount > maxList || sendCount > 0 && sends == nil || recvCount > 0 && recvs == nil:
		return invalid("sends and recvs: they cannot be %d at %p and %d at %p: give arrays and their lengths", sendCount, sends, recvCount, recvs)
	}
	return nil
}

// planOptions reads the flags of a plan.
func planOptions(flags cUint32) (o peer.PlanOptions, err error) {
	if flags&^C.STEPVAN_PLAN_REPLICAS != 0 {
		return o, invalid("flags: there are no such flags (got %#x, want at most %#x): use STEPVAN_PLAN_REPLICAS or 0", flags, C.STEPVAN_PLAN_REPLICAS)
	}
	o.Replicas = flags&C.STEPVAN_PLAN_REPLICAS != 0
	return o, nil
}

// draft is a plan that is being agreed on.
type draft struct {
	*borrowed
	node *node
	name string
}

// newDraft begins a plan. refuse ends it, unless begin has begun it.
func newDraft(name string, owner cUint64, n *node) *draft {
	return &draft{borrowed: borrow(owner, n), node: n, name: name}
}

// named reads tensors with names.
func (d *draft) named(of string, from []cNamed) ([]peer.Named, error) {
	all := make([]peer.Named, len(from))
	parts := map[string]layout.Part{} // most tensors share theirs
	for i := range from {
		c, t := &from[i], &all[i]
		if c.name == nil {
			return nil, fmt.Errorf("plan %s: %s[%d]: %w", d.name, of, i, isNull("name"))
		}
		t.Name = C.GoString(c.name)
		var err error
		if t.View, err = d.view(&c.view); err == nil && c.part.bytes > 0 {
			t.Part, err = partOf(&c.part, parts)
		}
		if err != nil {
			return nil, fmt.Errorf("plan %s: %s[%d] %s: %w", d.name, of, i, t.Name, err)
		}
	}
	return all, nil
}

// partOf reads a part. known has those that were read before.
func partOf(c *cBytes, known map[string]layout.Part) (layout.Part, error) {
	b, err := bytesOf("part", c, 1)
	if err != nil {
		return layout.Part{}, err
	}
	if p, ok := known[string(b[0])]; ok {
		return p, nil
	}
	p, rest, err := layout.ReadPart(b[0])
	if err == nil && len(rest) > 0 {
		err = invalid("part: %d bytes are left behind it: give what stepvan_part_of_spans and others have written", len(rest))
	}
	if err == nil {
		known[string(b[0])] = p
	}
	return p, err
}

func (d *draft) moves(of string, from []cMove) ([]peer.Move, error) {
	all := make([]peer.Move, len(from))
	for i := range from {
		c, m := &from[i], &all[i]
		m.ID, m.Peer, m.Wire, m.Merge = uint64(c.id), rankOf(c.peer), tensor.DType(c.wire), peer.Merge(c.merge)
		if c.label != nil {
			m.Label = C.GoString(c.label)
		}
		var err error
		if m.View, err = d.view(&c.view); err == nil && c.reserved != 0 {
			err = invalid("reserved is not 0 (got %d)", c.reserved)
		}
		if err != nil {
			return nil, fmt.Errorf("plan %s: %s[%d] %s: %w", d.name, of, i, m.Label, err)
		}
	}
	return all, nil
}

// begin gives the plan a number, and has the peers agree on it. From then on the draft is the goroutine's.
func (d *draft) begin(limit time.Duration, number *cUint64, agree func(context.Context) (*peer.Plan, error)) (*collective, error) {
	p := &plan{node: d.node, name: d.name}
	p.closing.Lock() // a close waits until the agreement is there
	defer p.closing.Unlock()
	id := plans.Put(p)
	if id == 0 {
		return nil, tooMany("plans")
	}
	*number = cUint64(id)
	p.agreement = d.node.begin("plan "+d.name, limit, func(ctx context.Context, _ *collective) (err error) {
		defer d.end(true)
		p.live, err = agree(ctx)
		return err
	})
	return p.agreement, nil
}

// onPlan is half for a call on a plan.
func onPlan(number cUint64, e *cError, f func(*plan) error) cCode {
	return onMade(&plans, "plan", number, e, f)
}

func (p *plan) of() *node { return p.node }

// agreed returns the plan that the peers have agreed on.
func (p *plan) agreed() (*peer.Plan, error) {
	switch {
	case !p.agreement.done():
		return nil, &coded{codeBusy, fmt.Errorf("plan %s: the peers have not agreed yet: wait for its number with stepvan_wait", p.name)}
	case p.live == nil:
		return nil, p.agreement.err
	}
	return p.live, nil
}

// goPlanBegin implements
//
//	int32_t stepvan_plan_begin(uint64_t plan, uint64_t version, uint64_t *handle, stepvan_error *error);
//
//export goPlanBegin
func goPlanBegin(number, version cUint64, handle *cUint64, e *cError) cCode {
	return onPlan(number, e, func(p *plan) error {
		if handle == nil {
			return isNull("handle")
		}
		if err := p.node.checkRunning(); err != nil {
			return err
		}
		live, err := p.agreed()
		if err != nil {
			return err
		}
		h, err := live.Begin(uint64(version))
		if err == nil {
			*handle = cUint64(h.ID())
		}
		return err
	})
}

// goPlanState implements
//
//	int32_t stepvan_plan_state(uint64_t plan, uint64_t *offered, uint64_t *version, stepvan_plan_stats *stats,
//	    stepvan_error *error);
//
//export goPlanState
func goPlanState(number cUint64, offered, version *cUint64, stats *C.stepvan_plan_stats, e *cError) cCode {
	return onPlan(number, e, func(p *plan) error {
		live, err := p.agreed()
		if err != nil {
			return err
		}
		if offered != nil {
			v, _ := live.Offered()
			*offered = cUint64(v)
		}
		if version != nil {
			*version = cUint64(live.Version())
		}
		if stats != nil {
			s := live.Stats()
			*stats = cPlanStats{
				moves: cUint64(s.Moves), pairs: cUint64(s.Pairs), sent: cUint64(s.Sent), received: cUint64(s.Received),
				viewed: cUint64(s.Viewed), written: cUint64(s.Written), streamed: cUint64(s.Streamed), local: cUint64(s.Local), merged: cUint64(s.Merged),
				passed: cUint64(s.Passed),
			}
		}
		return nil
	})
}

// goPlanClose implements
//
//	int32_t stepvan_plan_close(uint64_t plan, int64_t timeout_ns, stepvan_error *error);
//
//export goPlanClose
func goPlanClose(number cUint64, limit cInt64, e *cError) cCode {
	return onPlan(number, e, func(p *plan) error {
		ctx, cancel := limited(duration(limit))
		defer cancel()
		err := p.end(ctx)
		if err == nil {
			plans.Take(numbers.ID(number))
		}
		return err
	})
}

// end ends the plan. When it returns nil, nothing uses its memory.
func (p *plan) end(ctx context.Context) error {
	if !p.closing.TryLock() {
		return &coded{codeBusy, fmt.Errorf("plan %s: another thread closes it: wait for that", p.name)}
	}
	defer p.closing.Unlock()
	p.agreement.stop()
	if err := p.agreement.wait(ctx); err != nil && !p.agreement.done() {
		return errTimeout
	}
	if p.live == nil {
		return nil
	}
	return p.live.Close(ctx)
}
