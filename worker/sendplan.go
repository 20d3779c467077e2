package worker

import (
	"slices"

	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/wire"
)

// sendPlan says how the bytes of a request travel over a one-sided van. Without one, they travel in the message.
type sendPlan struct {
	pushes  []pushPlan    // one per push, or none
	pulls   []link.Target // where the server may write each pull; none, or with zero Targets among them
	written bool          // this worker writes the pushes, but those that stay in place, into chunks of the server
	phase   uint8         // of fenceTracker, while written
	targets []link.Target // of the payload, where written
}

// pushPlan says how the bytes of one push travel.
type pushPlan struct {
	target  link.Target // where they are written, or where the server reads them in place
	inPlace bool
	saved   bool // the server reads a copy in place
}

func (p *sendPlan) reset() {
	p.pushes, p.pulls, p.targets, p.written = p.pushes[:0], p.pulls[:0], p.targets[:0], false
}

// names reports whether the server reaches memory through this grant.
func (p *sendPlan) names(g link.GrantID) bool {
	return slices.ContainsFunc(p.pulls, func(t link.Target) bool { return t.Grant == g }) ||
		slices.ContainsFunc(p.pushes, func(x pushPlan) bool { return x.inPlace && x.target.Grant == g })
}

// planSend decides how the bytes of r travel. Under Worker.mu; endWrites follows once the link has taken or refused
// r.
func (r *request) planSend(l *lender) {
	switch caps := r.server.session.Caps(); {
	case !caps.OneSided:
		return
	case r.small(caps.InMessage) && (r.exchange.staged == nil || !caps.Offload): // a copy to an accelerator takes longer
		return
	}
	if len(r.pulls) > 0 && l.largestSent >= 0 { // what is only pushed is sent: the server may take its time with it
		l.dropped.Flush()
		r.lendPulls(l)
	}
	r.planPushes(l)
	if r.plan.written {
		r.plan.phase = r.server.fences.begin()
	}
}

// small reports whether all tensors of r take no more than most bytes together. They travel with their messages,
// which is less work for both sides than to say where they belong.
func (r *request) small(most int64) bool {
	return int64(totalBytes(r.exchange.push, r.pushes)+totalBytes(r.exchange.pull, r.pulls)) <= most
}

// lendPulls has the server write the answer into the pull tensors that it can reach.
func (r *request) lendPulls(l *lender) {
	for _, i := range r.pulls {
		var t link.Target
		if b := r.exchange.room(l, r.server, i); len(b) > 0 {
			if t = r.lend(b); t.Grant == 0 && !r.server.granted.Registered(b) {
				l.memory.Registry.NoteStreamed("pull", r.exchange.pullKeys[i], len(b))
			}
		}
		r.plan.pulls = append(r.plan.pulls, t)
	}
}

// lend returns how the server reaches b, or the zero Target.
func (r *request) lend(b []byte) link.Target {
	t := r.server.reach(b)
	if t.Grant != 0 {
		r.on(lendTensors)
	}
	return t
}

// planPushes leaves pushes in place where r lends its pulls, and the server can see them. The others are written into
// chunks of the server when it has one for each of them, and are sent otherwise. Where a device writes them, a few
// bytes of pushes without a chunk travel with the head.
func (r *request) planPushes(l *lender) {
	x, p, caps := r.exchange, &r.plan, r.server.session.Caps()
	mayLend := caps.Views && len(p.pulls) > 0 && len(x.push)*len(x.pull) <= maxComparisons
	some, all := false, true
	var along int64 // bytes that may travel with the head
	if caps.Offload {
		along = caps.InMessage
	}
	for _, i := range r.pushes {
		n := x.push[i].Len()
		c, known := r.server.chunks[x.pushKeys[i]]
		if mayLend && !known && n > l.largestSent {
			if t, saved := r.lendPush(l, i); t.Grant != 0 {
				p.pushes = append(p.pushes, pushPlan{target: t, inPlace: true, saved: saved})
				continue
			}
		}
		push := pushPlan{target: c.target}
		registered := r.isRegistered(i)
		switch {
		case n == 0:
		case c.fits(n) && registered:
			some = true
		case int64(n) <= along:
			along -= int64(n)
			push.target = link.Target{}
		default:
			all = false
			if !registered {
				l.memory.Registry.NoteStreamed("push", x.pushKeys[i], n)
			}
		}
		p.pushes = append(p.pushes, push)
	}
	if p.written = some && all; p.written {
		return
	}
	for j := range p.pushes {
		if !p.pushes[j].inPlace {
			p.pushes[j].target = link.Target{}
		}
	}
}

// lendPush returns how the server reaches push i or, with saved, a copy of it. It returns the zero Target where the
// push must be sent.
func (r *request) lendPush(l *lender, i int) (t link.Target, saved bool) {
	if r.exchange.pullsInto(i) {
		return link.Target{}, false
	}
	if t = r.lend(r.exchange.push[i].Bytes()); t.Grant == 0 {
		t = r.lendCopy(l, i)
		saved = true
	}
	return t, saved
}

// maxComparisons bounds the work of pullsInto for one request. A larger request sends its pushes.
const maxComparisons = 1 << 14

// describePush says in d how push j travels, and reports whether its bytes stay in place.
func (p *sendPlan) describePush(j int, d *wire.Descriptor) (inPlace bool) {
	if len(p.pushes) == 0 {
		return false
	}
	push := &p.pushes[j]
	setTarget(d, &push.target)
	if push.inPlace {
		d.Flags |= wire.DescInPlace
	} else if p.written {
		p.targets = append(p.targets, push.target)
	}
	return push.inPlace
}

// endWrites ends what planSend has begun. Under Worker.mu.
func (r *request) endWrites(s *fenceSender) {
	if r.plan.written {
		r.plan.written = false
		r.server.fences.end(r.plan.phase)
		s.note(r.server)
	}
}
