package particle

import (
	"errors"
	"slices"

	"github.com/stepvan/stepvan"
)

// came takes a frame of another loop. The driver calls it, or Open.
func (l *Loop) came(from stepvan.Rank, body []byte) {
	body = slices.Clone(body)
	f, err := readFrame(body)
	l.mu.Lock()
	defer l.unlock()
	l.take(from, &f, err)
}

// take takes a frame, or what is left of it after an error. Under mu.
func (l *Loop) take(from stepvan.Rank, f *frame, err error) {
	r := l.remotes[from]
	if r == nil || r.lost != nil || l.over != nil {
		if err == nil {
			discard(l.peer, from, f, nil)
		}
		return
	}
	if err != nil {
		r.refuse(f, fail(codeInvalid, "the loop of %s: %v", l.name, err))
		return
	}
	if err := r.checkAtOnce(f); err != nil {
		discard(l.peer, from, f, nil)
		r.refuse(f, err)
		return
	}
	r.handle(*f)
}

// charge is what a call of another loop counts in remote.held.
func (f *frame) charge() int64 { return callBytes + int64(len(f.data)+len(f.packed)) }

// reply takes the result of a call, unless nobody waits for it or there is one already.
func (r *remote) reply(f frame) {
	x := r.loop.futures[f.number]
	if x == nil || x.remote != r || x.acks > 0 || x.replied {
		discard(r.loop.peer, r.rank, &f, nil)
		if f.flags&flagView != 0 {
			r.send(&outgoing{frame: frame{op: opFreed, number: f.tag}})
		}
		return
	}
	x.replied = true
	r.answers.add(f)
}

// refuse answers a frame that is not taken, if somebody waits for that.
func (r *remote) refuse(f *frame, why error) {
	switch f.op {
	case opCall, opGet:
		r.send(&outgoing{frame: frame{op: opReply, number: f.number}.with(failureOf(why))})
	case opReply:
		if x := r.loop.futures[f.number]; x != nil && x.remote == r && x.acks == 0 {
			x.finish(nil, failureOf(why).at(x))
		}
	case opHello:
		r.lose(lostLoop(r.name, why))
	}
}

// handle handles a frame.
func (r *remote) handle(f frame) {
	l := r.loop
	if !r.known && f.op != opHello && f.op != opBye {
		discard(l.peer, r.rank, &f, nil)
		r.refuse(&f, fail(codeInvalid, "the loop of %s has got no hello of the caller's", l.name))
		return
	}
	switch f.op {
	case opHello:
		r.takeHello(&f)
	case opPlace:
		r.placed(&f)
	case opPlaced:
		r.acknowledged(&f)
	case opCall, opGet:
		if len(f.path) == 0 || f.path[len(f.path)-1] != (step{r.rank, f.number}) {
			discard(l.peer, r.rank, &f, nil)
			r.refuse(&f, fail(codeInvalid, "the loop of %s: the path of the call does not end with the call", l.name))
			return
		}
		if f.charge() > maxHeld-r.held {
			discard(l.peer, r.rank, &f, nil)
			r.refuse(&f, fail(codeFull, "calls with %d bytes in their frames have no result yet at the loop of %s: wait for some", r.held, l.name))
			return
		}
		r.held += f.charge()
		r.calls.add(f)
	case opReply:
		r.reply(f)
	case opFreed:
		r.freed(f.number)
	case opBye:
		r.lose(lostLoop(r.name, errors.New("its loop was closed")))
	}
}

// takeHello takes the hello of the other loop.
func (r *remote) takeHello(f *frame) {
	h, err := readHello(f.data)
	if err != nil || r.known {
		if err != nil {
			r.lose(lostLoop(r.name, err))
		}
		return
	}
	r.known, r.hello = true, h
	r.seals.prepare(r.loop.opt.Key, &r.loop.hello, &h, r.loop.rank, r.rank)
	r.flush()
}

// arrived handles a call or a reply whose value is whole.
func (r *remote) arrived(a *arrival) {
	l, f := r.loop, &a.frame
	if f.op == opReply {
		r.replied(a)
		return
	}
	c := &Call{
		loop: l, view: f.op == opGet, to: f.to, from: f.from, name: f.name, chain: f.chain, path: f.path, args: a.content, remote: r, charge: f.charge(),
	}
	if a.err != nil {
		c.refuse(a.err)
		return
	}
	c.deliver()
}

// replied handles the result of a call.
func (r *remote) replied(a *arrival) {
	l := r.loop
	f := l.futures[a.frame.number]
	if f == nil || f.remote != r || f.acks > 0 {
		l.later(a.content)
		return
	}
	switch {
	case a.err != nil:
		f.finish(nil, failureOf(a.err).at(f))
	case a.frame.code != codeOK:
		f.finish(nil, (&failure{a.frame.code, string(a.frame.data)}).at(f))
	case a.frame.flags&flagView != 0:
		r.see(f, &a.frame)
	default:
		f.finish(a.content, nil)
	}
}
