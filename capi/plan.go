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
	return onPeer(id, e, func(n *node) error {
		if err := n.checkRunning(); err != nil {
			return err
		}
		switch {
		case name == nil || number == nil:
			return isNull("name and plan")
		case sendCount > maxList || recvCount > maxList || sendCount > 0 && sends == nil || recvCount > 0 && recvs == nil:
			return invalid("sends and recvs: they cannot be %d moves at %p and %d at %p: give arrays and their lengths", sendCount, sends, recvCount, recvs)
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
		_, err = d.begin(duration(limit), number, func(ctx context.Context) (*peer.Plan, error) { return n.peer.Plan(ctx, d.name, out, in) })
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
	return onGroup(number, e, func(g *group) error {
		switch {
		case name == nil || plan == nil:
			return isNull("name and plan")
		case sendCount > maxList || recvCount > maxList || sendCount > 0 && sends == nil || recvCount > 0 && recvs == nil:
			return invalid("sends and recvs: they cannot be %d tensors at %p and %d at %p: give arrays and their lengths", sendCount, sends, recvCount, recvs)
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
			return d.begin(duration(limit), plan, func(ctx context.Context) (*peer.Plan, error) { return g.live.Match(ctx, d.name, out, in) })
		}))
	})
}

// draft is a plan that is being agreed on.
type draft struct {
	node     *node
	name     string
	call     *call
	retained []tensor.Strided // so that the program may end their numbers meanwhile
}

// newDraft begins a plan. refuse ends it, unless begin has begun it.
func newDraft(name string, owner cUint64, n *node) *draft {
	d := &draft{node: n, name: name, call: newCall(owner)}
	d.call.storages = n.live.Load().Storages()
	return d
}

// refuse ends a draft whose call has failed, and returns why.
func (d *draft) refuse(err error) error {
	if err != nil {
		d.release()
		d.call.end(false)
	}
	return err
}

func (d *draft) retain(v tensor.Strided) error {
	err := v.Retain()
	if err == nil {
		d.retained = append(d.retained, v)
	}
	return err
}

// named reads tensors with names.
func (d *draft) named(of string, from []cNamed) ([]peer.Named, error) {
	all := make([]peer.Named, len(from))
	parts := map[string]layout.Part{} // most tensors share theirs
	for i := range from {
		c, t := &from[i], &all[i]
		err := d.call.view(&t.View, &c.view)
		if c.name == nil {
			return nil, fmt.Errorf("plan %s: %s[%d]: %w", d.name, of, i, isNull("name"))
		}
		t.Name = C.GoString(c.name)
		if err == nil {
			err = d.retain(t.View)
		}
		if err == nil && c.part.bytes > 0 {
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
		err := d.call.view(&m.View, &c.view)
		switch {
		case err != nil:
		case c.reserved != 0:
			err = invalid("reserved is not 0 (got %d)", c.reserved)
		default:
			err = d.retain(m.View)
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
		defer d.call.end(true)
		defer d.release()
		p.live, err = agree(ctx)
		return err
	})
	return p.agreement, nil
}

func (d *draft) release() {
	for i := range d.retained {
		d.retained[i].Release()
	}
	d.retained = nil
}

// noPlan is the error of a number without a plan.
func noPlan(number cUint64) error {
	if plans.Fate(numbers.ID(number)) == numbers.Swept {
		return &coded{codeClosed, fmt.Errorf("plan %d ended with its node, which was closed", number)}
	}
	return missing(&plans, "plan", "was closed", number)
}

// onPlan is half for a call on a plan. A panic ends the node of the plan, too.
func onPlan(number cUint64, e *cError, f func(*plan) error) (code cCode) {
	p, ok := plans.Get(numbers.ID(number))
	if !ok {
		return fail(e, noPlan(number))
	}
	defer guardOf(p.node, e, &code)
	return result(e, f(p))
}

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
