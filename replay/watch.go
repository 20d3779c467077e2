package replay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/peer"
)

// probeEvery is how often the ring looks whether the collectors live that it waits for. A death is known within 2 s.
const probeEvery = 100 * time.Millisecond

// asker asks the collectors of a ring, and knows which of them live.
type asker struct{ ring *Ring }

// listener takes what collectors send to a ring.
type listener struct{ ring *Ring }

// ask asks the collectors for the rows of a pack, until all of them that live have been asked.
func (x asker) ask(p *pack) {
	x.ring.preparing.Lock()
	defer x.ring.preparing.Unlock()
	for x.askOnce(p) {
	}
}

// askOnce asks each collector once. It reports whether one has died and the others must be asked again.
func (x asker) askOnce(p *pack) (again bool) {
	if err := x.renew(p); err != nil {
		x.giveUp(p, err)
		return false
	}
	asks := x.asks(p)
	for i := range asks {
		a, to := &asks[i].ask, asks[i].to
		err := x.ring.peer.Mail(to, topicOf(x.ring.opt.Name, false), a.append(nil))
		switch {
		case err == nil:
		case errors.Is(err, stepvan.ErrPeerLost):
			return x.remove(to, "died")
		default:
			x.giveUp(p, fmt.Errorf("replay: tick %d: peer %d was not asked: %w", a.tick, to, err))
			return false
		}
	}
	if len(asks) > 0 {
		select {
		case x.ring.wake <- struct{}{}:
		default:
		}
	}
	return false
}

// asked is an ask and its collector.
type asked struct {
	ask
	to stepvan.Rank
}

// asks divides the rows of a pack anew. It returns nothing when the pack has ended.
func (x asker) asks(p *pack) (list []asked) {
	x.ring.mu.Lock()
	defer x.ring.mu.Unlock()
	if p.asked || p.state != requested || x.ring.pending != p {
		return nil
	}
	p.asked = true
	x.ring.attempts++
	p.attempt = x.ring.attempts
	p.divide(x.ring.opt.Rows, x.ring.members)
	token := x.ring.slots[p.slot].window.Token()
	for _, s := range p.shares {
		list = append(list, asked{ask{
			head: head{kind: kindAsk, picks: picksSplitMix, dtype: x.ring.opt.Layout.DType, ring: x.ring.id, tick: p.tick, attempt: p.attempt},
			seed: p.seed, least: p.least, slot: uint32(p.slot), width: uint32(x.ring.opt.Layout.Width()), count: uint64(x.ring.opt.Rows),
			first: s.first, rows: s.rows, token: token,
		}, s.rank})
	}
	return list
}

// renew gives a slot other memory when somebody may still write to it. The old memory is freed when nobody can. Under
// preparing.
func (x asker) renew(p *pack) error {
	if !x.spoilt(p) {
		return nil
	}
	other, err := slotMemory(x).newSlot(p.slot)
	if err != nil {
		return err
	}
	old := x.exchange(p.slot, other)
	go func() {
		defer x.ring.tasks.Done()
		if err := slotMemory(x).dropSlot(context.Background(), old); err != nil {
			x.ring.opt.Log.Warn().Err(err).Msg("the memory of a slot was not given back")
		}
	}()
	return nil
}

// spoilt reports whether the slot of a pack needs other memory before the collectors are asked.
func (x asker) spoilt(p *pack) bool {
	x.ring.mu.Lock()
	defer x.ring.mu.Unlock()
	return !p.asked && p.state == requested && x.ring.pending == p && x.ring.slots[p.slot].spoilt
}

// exchange puts a slot in place of another one. It returns the one that is not used any more. Close waits until the
// caller has freed it.
func (x asker) exchange(i int, other *slot) (old *slot) {
	x.ring.mu.Lock()
	defer x.ring.mu.Unlock()
	x.ring.tasks.Add(1) // the caller holds preparing, and Close takes it before it waits
	if x.ring.closed {
		return other
	}
	old, x.ring.slots[i] = x.ring.slots[i], other
	return old
}

// giveUp fails a pack.
func (x asker) giveUp(p *pack, err error) {
	x.ring.mu.Lock()
	defer x.ring.mu.Unlock()
	if p.state == requested && x.ring.pending == p {
		x.ring.fail(p, err)
	}
}

// remove takes a collector from the list. It reports whether the rows of a batch must be asked for anew, and fails the
// batch when there is nobody to ask.
func (x asker) remove(rank stepvan.Rank, how string) (again bool) {
	x.ring.mu.Lock()
	defer x.ring.mu.Unlock()
	i := slices.Index(x.ring.members, rank)
	if i < 0 {
		return false
	}
	x.ring.members = slices.Delete(x.ring.members, i, i+1)
	x.ring.lost = append(x.ring.lost, rank)
	x.ring.opt.Log.Warn().Int("peer", int(rank)).Msg("a collector has " + how + ": others pack its rows")
	p := x.ring.pending
	if p == nil || p.state != requested || !p.awaits(rank) {
		return false
	}
	x.ring.slots[p.slot].spoilt = true
	p.asked, p.attempt = false, 0 // what the others were asked for does not count
	if len(x.ring.members) == 0 {
		x.ring.fail(p, x.ring.noneLeft())
		return false
	}
	return true
}

// join lets a collector that has left pack rows again, from the next batch on.
func (x asker) join(rank stepvan.Rank) {
	x.ring.mu.Lock()
	defer x.ring.mu.Unlock()
	if i := slices.Index(x.ring.lost, rank); i >= 0 {
		x.ring.lost = slices.Delete(x.ring.lost, i, i+1)
		x.ring.members = append(x.ring.members, rank)
		slices.SortFunc(x.ring.members, func(a, b stepvan.Rank) int {
			return slices.Index(x.ring.opt.Collectors, a) - slices.Index(x.ring.opt.Collectors, b)
		})
	}
}

// awaits reports whether rows of a collector are missing.
func (p *pack) awaits(rank stepvan.Rank) bool {
	return slices.ContainsFunc(p.shares, func(s share) bool { return s.rank == rank && s.left > 0 })
}

// watch looks for collectors that have died, while a batch waits for them.
func (x asker) watch() {
	for {
		select {
		case <-x.ring.wake:
		case <-x.ring.over:
			return
		}
		for p, ranks := x.awaited(); p != nil; p, ranks = x.awaited() {
			for _, rank := range ranks {
				if err := peer.Check(x.ring.peer, rank); errors.Is(err, stepvan.ErrPeerLost) {
					x.remove(rank, "died")
				}
			}
			x.ask(p)
			select {
			case <-time.After(probeEvery):
			case <-x.ring.wake:
			case <-x.ring.over:
				return
			}
		}
	}
}

// awaited is the pack that waits for rows, and the collectors that owe them.
func (x asker) awaited() (p *pack, ranks []stepvan.Rank) {
	x.ring.mu.Lock()
	defer x.ring.mu.Unlock()
	if x.ring.pending == nil || x.ring.pending.state != requested {
		return nil, nil
	}
	for _, s := range x.ring.pending.shares {
		if s.left > 0 {
			ranks = append(ranks, s.rank)
		}
	}
	return x.ring.pending, ranks
}

// noted takes the note of a Put. The driver calls it.
func (x listener) noted(from stepvan.Rank, body []byte) {
	h, err := parseHead(body)
	if err == nil && h.kind != kindNote {
		err = errKind(h)
	}
	if err != nil {
		x.blame(from, err)
		return
	}
	n, err := parseNote(h, body)
	if err != nil {
		x.blame(from, err)
		return
	}
	x.ring.mu.Lock()
	defer x.ring.mu.Unlock()
	p := x.ring.pending
	if h.ring != x.ring.id || p == nil || p.state != requested || h.attempt != p.attempt {
		return // of a tick that was given up
	}
	if err := x.check(p, from, &n); err != nil {
		x.ring.fail(p, remote(from, err))
		return
	}
	if p.left > 0 {
		return
	}
	if err := x.ring.twins.submit(p.slot, &x.ring.slots[p.slot].memory); err != nil {
		p.state = submitted
		x.ring.fail(p, fmt.Errorf("replay: tick %d: the copy to the device: %w", p.tick, err))
		return
	}
	p.state = submitted
	x.ring.refresh(p)
	p.packed.Set()
}

// errKind refuses a message of a kind that nobody expects.
func errKind(h head) error {
	return errs.Protocol("kind", atKind, "a message of kind %d is not expected here", h.kind)
}

// check refuses a note that does not say what was asked for. Under mu.
func (x listener) check(p *pack, from stepvan.Rank, n *note) error {
	switch at := int(n.slot); {
	case n.tick != p.tick:
		return fmt.Errorf("it packed tick %d, and was asked for tick %d", n.tick, p.tick)
	case at >= len(x.ring.slots):
		return fmt.Errorf("it names slot %d: there is no such slot (want 0 to %d)", at, len(x.ring.slots)-1)
	case at == x.ring.hot && at != p.slot:
		return fmt.Errorf("it names slot %d, which is hot: the learner reads it", at)
	case at != p.slot:
		return fmt.Errorf("it names slot %d, and was asked for slot %d", at, p.slot)
	}
	return p.take(from, n)
}

// remote is the error of a collector.
func remote(from stepvan.Rank, why error) error {
	return &stepvan.OpError{Op: "replay", Peer: fmt.Sprintf("peer %d", from), Err: fmt.Errorf("%w: %w", stepvan.ErrRemote, why)}
}

// blame fails the batch that a collector owes rows of.
func (x listener) blame(from stepvan.Rank, why error) {
	x.ring.mu.Lock()
	defer x.ring.mu.Unlock()
	if p := x.ring.pending; p != nil && p.state == requested && p.awaits(from) {
		x.ring.fail(p, remote(from, why))
	}
}

// mailed takes the mail of a collector. The driver calls it.
func (x listener) mailed(from stepvan.Rank, body []byte) {
	h, err := parseHead(body)
	switch {
	case err != nil:
		x.blame(from, err)
	case h.kind == kindPing:
	case h.kind == kindRefusal:
		x.refused(from, h, refusalText(body))
	case h.kind == kindLeave:
		if h.ring != 0 && h.ring != x.ring.id {
			return // it has packed for an earlier ring
		}
		if asker(x).remove(from, "left") {
			select {
			case x.ring.wake <- struct{}{}: // the watch asks the others
			default:
			}
		}
	case h.kind == kindJoin:
		asker(x).join(from)
		asker(x).tell(from, kindOpen)
	default:
		x.blame(from, errKind(h))
	}
}

// refused fails the batch that a collector cannot pack.
func (x listener) refused(from stepvan.Rank, h head, why string) {
	x.ring.mu.Lock()
	defer x.ring.mu.Unlock()
	if p := x.ring.pending; p != nil && h.ring == x.ring.id && p.state == requested && p.attempt == h.attempt && p.awaits(from) {
		x.ring.fail(p, remote(from, errors.New(why)))
	}
}

// namesOf lists peers for people.
func namesOf(ranks []stepvan.Rank) string {
	names := make([]string, len(ranks))
	for i, rank := range ranks {
		names[i] = fmt.Sprintf("peer %d", rank)
	}
	return strings.Join(names, ", ")
}
