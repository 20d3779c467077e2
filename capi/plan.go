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
		d := &draft{node: n, name: C.GoString(name), call: newCall(owner)}
		d.call.storages = n.live.Load().Storages()
		err := d.load(list[cMove](unsafe.Pointer(sends), sendCount), list[cMove](unsafe.Pointer(recvs), recvCount))
		if err == nil {
			err = d.begin(duration(limit), number)
		}
		if err != nil {
			d.release()
			d.call.end(false)
		}
		return err
	})
}

// draft is a plan that is being agreed on.
type draft struct {
	node         *node
	name         string
	call         *call
	sends, recvs []peer.Move
	retained     []tensor.Strided // so that the program may end their numbers meanwhile
}

// load reads the moves of C.
func (d *draft) load(sends, recvs []cMove) (err error) {
	if d.sends, err = d.moves("sends", sends); err == nil {
		d.recvs, err = d.moves("recvs", recvs)
	}
	return err
}

func (d *draft) moves(of string, from []cMove) ([]peer.Move, error) {
	all := make([]peer.Move, len(from))
	for i := range from {
		c, m := &from[i], &all[i]
		m.ID, m.Peer = uint64(c.id), rankOf(c.peer)
		if c.label != nil {
			m.Label = C.GoString(c.label)
		}
		err := d.call.view(&m.View, &c.view)
		switch {
		case err != nil:
		case c.wire != 0 || c.merge != 0 || c.reserved != 0:
			err = invalid("wire, merge and reserved are not 0 (got %d, %d and %d)", c.wire, c.merge, c.reserved)
		default:
			if err = m.View.Retain(); err == nil {
				d.retained = append(d.retained, m.View)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("plan %s: %s[%d] %s: %w", d.name, of, i, m.Label, err)
		}
	}
	return all, nil
}

// begin gives the plan a number, and has the peers agree on it. From then on the draft is the goroutine's.
func (d *draft) begin(limit time.Duration, number *cUint64) error {
	p := &plan{node: d.node, name: d.name}
	p.closing.Lock() // a close waits until the agreement is there
	defer p.closing.Unlock()
	id := plans.Put(p)
	if id == 0 {
		return tooMany("plans")
	}
	*number = cUint64(id)
	p.agreement = d.node.begin("plan "+d.name, limit, func(ctx context.Context, _ *collective) (err error) {
		defer d.call.end(true)
		defer d.release()
		p.live, err = d.node.peer.Plan(ctx, d.name, d.sends, d.recvs)
		return err
	})
	return nil
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
	defer p.node.guard(e, &code)
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
				viewed: cUint64(s.Viewed), written: cUint64(s.Written), streamed: cUint64(s.Streamed), local: cUint64(s.Local),
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
