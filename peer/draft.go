package peer

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/strided"
	"github.com/stepvan/stepvan/internal/text"
)

// draft is a plan that the peers have not agreed on. The goroutine that calls Peer.Plan uses it.
//
// Each peer sends each other one that it names a proposal: the forms of their moves at its end. From the two proposals
// both ends derive the same routes. Then each tells all others that it agrees, or that it rejects the plan, and why.
//
// Each attempt to make a plan has a number. A peer that has read a proposal says so with the numbers of both attempts.
// Two attempts that have done so belong together: what comes later names both, and everything else is passed over.
type draft struct {
	plan    *Plan
	options PlanOptions
	group   *Group  // whose operation the plan is for; nil: the program's
	pairs   []*pair // Peer.mu guards changes
	attempt uint64
	failed  error // another peer rejects the plan. Under Peer.mu
	merges  []mergeMove
}

// Kinds of letters about a plan.
const (
	letterProposal = 1 + iota
	letterAgreed
	letterRejected
	letterChains  // the places of the receiver of this letter in the chains of its sender
	letterHops    // the views of both in the chains that they are neighbors in
	letterPaired  // its sender has read the proposal
	letterGivenUp // a rejection of a plan that may fit
)

// prepare checks the moves and sorts them by peer.
func (d *draft) prepare(sends, recvs []Move) error {
	pl := d.plan
	pl.own.copy, pl.own.done = pl.local.copyIn, pl.copied
	pairs := map[stepvan.Rank]*pair{}
	for _, list := range []struct {
		moves []Move
		sends bool
	}{{sends, true}, {recvs, false}} {
		for _, m := range list.moves {
			if err := pl.checkMove(&m, list.sends); err != nil {
				return err
			}
			x := pairs[m.Peer]
			if x == nil {
				x = &pair{draft: d, rank: m.Peer}
				pairs[m.Peer] = x
				d.pairs = append(d.pairs, x)
			}
			if list.sends {
				x.sends = append(x.sends, m)
			} else {
				x.recvs = append(x.recvs, m)
			}
		}
	}
	slices.SortFunc(d.pairs, func(a, b *pair) int { return cmp.Compare(a.rank, b.rank) })
	if err := d.checkIDs(); err != nil {
		return err
	}
	if err := d.checkDestinations(recvs); err != nil {
		return err
	}
	return d.register()
}

// moveName names a move in errors.
func (m *Move) name() string {
	if m.Label == "" {
		return fmt.Sprintf("move %d", m.ID)
	}
	return fmt.Sprintf("move %d (%s)", m.ID, text.Line(m.Label, maxName))
}

// checkMove refuses a move whose memory cannot be used.
func (pl *Plan) checkMove(m *Move, sends bool) error {
	check := checkDestination
	if sends {
		check = checkSource
	}
	err := check(&m.View)
	switch {
	case err != nil:
	case m.Wire != 0 && !m.Wire.Valid():
		err = errs.Invalid("Wire: there is no such type (got %d): give the type of one end, or 0", m.Wire)
	case m.Merge >= mergeEnd:
		err = errs.Invalid("Merge: there is no such merge (got %d, want 0 to %d): use the constants", m.Merge, mergeEnd-1)
	case sends && m.Merge != Overwrite:
		err = errSendMerges
	}
	if err != nil {
		return fmt.Errorf("plan %s: %s: %w", pl.name, m.name(), err)
	}
	return nil
}

var errSendMerges = errs.Invalid("Merge: a send has none: give it to the receive")

// checkIDs sorts the moves of each pair and refuses an ID that two of them have.
func (d *draft) checkIDs() error {
	for _, x := range d.pairs {
		for _, list := range [][]Move{x.sends, x.recvs} {
			slices.SortFunc(list, func(a, b Move) int { return cmp.Compare(a.ID, b.ID) })
			for i := 1; i < len(list); i++ {
				if list[i].ID == list[i-1].ID {
					return errs.Invalid("plan %s: %s and %s: they have the same ID and the same peer %d: give each move to a peer an ID of its own",
						d.plan.name, list[i-1].name(), list[i].name(), x.rank)
				}
			}
		}
	}
	return nil
}

// checkDestinations refuses two receives that write to the same element, unless they have the same view and merge.
func (d *draft) checkDestinations(recvs []Move) error {
	seen := map[destination]bool{}
	var views []strided.View
	var moves []*Move
	for i := range recvs {
		m := &recvs[i]
		if m.Merge != Overwrite {
			key := destinationOf(m)
			if seen[key] {
				continue
			}
			seen[key] = true
		}
		moves, views = append(moves, m), append(views, m.View.Places())
	}
	i, j, found, sure := strided.FirstIntersection(views)
	if !found && sure {
		return nil
	}
	why := "both write to the same memory"
	if !sure {
		why = "whether both write to the same memory cannot be found out"
	}
	return errs.Invalid("plan %s: %s from peer %d and %s from peer %d: %s: give each move a destination of its own, or all the same view and Merge",
		d.plan.name, moves[i].name(), moves[i].Peer, moves[j].name(), moves[j].Peer, why)
}

// register takes the name of the plan, and retains its memory.
func (d *draft) register() error {
	pl := d.plan
	p := pl.p
	p.mu.Lock()
	defer p.unlock()
	for _, x := range d.pairs {
		r, err := p.find("plan "+pl.name, x.rank)
		if err != nil {
			return err
		}
		x.name = r.Name
	}
	if p.plans[pl.name] != nil {
		return fmt.Errorf("plan %s: this peer has a plan of that name: close it first, or give another name: %w", pl.name, stepvan.ErrBusy)
	}
	for _, x := range d.pairs {
		for _, list := range [][]Move{x.sends, x.recvs} {
			for i := range list {
				if err := list[i].View.Retain(); err != nil {
					pl.release()
					return fmt.Errorf("plan %s: %s: %w", pl.name, list[i].name(), err)
				}
				pl.views = append(pl.views, list[i].View)
			}
		}
	}
	p.plans[pl.name] = pl
	pl.draft = d
	p.letters.attempts++
	d.attempt = p.letters.attempts
	return nil
}

// check implements agreement.
func (d *draft) check() error {
	if d.failed != nil {
		return d.failed
	}
	if d.group != nil && d.group.broken != nil {
		return d.group.broken
	}
	if err := d.plan.broken; err != nil {
		return errs.Ended(d.op(), err)
	}
	return cmp.Or(d.plan.p.letters.checkLiving(d.op(), d.ranks()), d.checkSessions())
}

// checkSessions returns an error when the connection with a peer was lost after the proposal to it. What the two have
// told each other of their memory holds for that connection alone.
func (d *draft) checkSessions() error {
	for _, x := range d.pairs {
		if r := d.plan.p.remotes[x.rank]; x.session != nil && x.session != r.session {
			return r.failure(d.op(), fmt.Errorf("%w: the connection was lost while the plan was made", stepvan.ErrPeerLost))
		}
	}
	return nil
}

// of implements agreement.
func (d *draft) of() *Group { return d.group }

// spares implements agreement.
func (d *draft) spares() bool { return false }

// has implements agreement.
func (d *draft) has(rank stepvan.Rank) bool {
	return slices.ContainsFunc(d.pairs, func(x *pair) bool { return x.rank == rank })
}

// op names the plan in errors.
func (d *draft) op() string { return "plan " + d.plan.name }

// agree makes the plan together with the other peers.
func (d *draft) agree(ctx context.Context) (*Plan, error) {
	p := d.plan.p
	if err := p.Connect(ctx, d.ranks()...); err != nil {
		return nil, err
	}
	if err := d.propose(); err != nil {
		return nil, err
	}
	if err := d.readProposals(ctx); err != nil {
		return nil, err
	}
	if err := d.awaitPairs(ctx); err != nil {
		return nil, d.explain(err)
	}
	for _, x := range d.pairs {
		if err := x.fits(); err != nil {
			return nil, err
		}
	}
	if d.options.Replicas {
		if err := (chainDraft{d}).makeChains(ctx); err != nil {
			return nil, err
		}
	}
	for _, x := range d.pairs {
		if err := x.match(); err != nil {
			return nil, err
		}
	}
	chainDraft{d}.linkHops()
	if len(d.merges) > 0 {
		g, err := newMerger(d.plan, d.merges)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", d.op(), err)
		}
		d.plan.merge, d.merges = g, nil
	}
	if err := d.sendAgreement(); err != nil {
		return nil, err
	}
	for _, x := range d.pairs {
		if err := d.awaitAgreement(ctx, x); err != nil {
			return nil, err
		}
	}
	d.end()
	return d.plan, nil
}

// end ends a draft that is a plan now.
func (d *draft) end() {
	p := d.plan.p
	p.mu.Lock()
	defer p.unlock()
	d.plan.draft, d.plan.attempt, d.plan.with, d.plan.made = nil, d.attempt, d.ranks(), time.Now()
}

// ranks lists the other peers.
func (d *draft) ranks() (list []stepvan.Rank) {
	for _, x := range d.pairs {
		list = append(list, x.rank)
	}
	return list
}

// isSelf reports whether x is this peer and itself.
func (d *draft) isSelf(x *pair) bool { return x.rank == d.plan.p.Rank() }

// sendAgreement tells the other peers that this one agrees, and the numbers of its edges.
func (d *draft) sendAgreement() error {
	p := d.plan.p
	p.mu.Lock()
	defer p.unlock()
	if err := d.check(); err != nil {
		return err
	}
	for _, x := range d.pairs {
		if x.rank == p.rank {
			continue
		}
		b := d.begin(letterAgreed, x)
		b = binary.LittleEndian.AppendUint64(b, x.out.number())
		b = binary.LittleEndian.AppendUint64(b, x.in.number())
		for _, h := range x.hops {
			b = binary.LittleEndian.AppendUint64(b, h.edge.number())
		}
		p.remotes[x.rank].letters.post(d.key(), b)
	}
	return nil
}

// number is the number of an edge, or 0 for none.
func (e *edge) number() uint64 {
	if e == nil {
		return 0
	}
	return uint64(e.id)
}

// awaitAgreement waits until the other peer agrees.
func (d *draft) awaitAgreement(ctx context.Context, x *pair) error {
	if d.isSelf(x) {
		return nil
	}
	l, err := d.read(ctx, x, func(l *letter) bool {
		return l.kind == letterAgreed && l.from == x.attempt && l.to == d.attempt
	})
	if err != nil {
		return err
	}
	in, out := l.u64(), l.u64() // what the other end calls them
	hops := make([]uint64, len(x.hops))
	for i := range hops {
		hops[i] = l.u64()
	}
	err = l.end()
	if err == nil && ((in == 0) != (x.in == nil) || (out == 0) != (x.out == nil) || slices.Contains(hops, 0)) {
		err = errs.Protocol("edges", 17, "an agreement has edges %#x and %#x", in, out)
	}
	if err != nil {
		return d.expel(x, err)
	}
	p := d.plan.p
	p.mu.Lock()
	defer p.unlock()
	if err := d.check(); err != nil {
		return err
	}
	if x.in != nil {
		x.in.theirs = in
	}
	if x.out != nil {
		x.out.theirs = out
	}
	for i, h := range x.hops {
		h.edge.theirs = hops[i]
		h.edge.relay.announceNext()
	}
	return nil
}

// withdraw ends a draft that has failed, and tells the others.
func (d *draft) withdraw(why error) {
	pl := d.plan
	p := pl.p
	p.mu.Lock()
	defer p.unlock()
	pl.closed, pl.draft = true, nil
	kind, yes, mine := byte(letterRejected), false, false
	if yes, mine = gaveUp(why); yes {
		kind = letterGivenUp
	}
	for _, x := range d.pairs {
		if r := p.remotes[x.rank]; x.proposed && r.session != nil {
			if x.attempt == 0 && (mine || !yes) { // else what waits may be the next attempt of the other peer
				x.attempt = r.letters.nextProposal(d.key())
			}
			r.letters.post(d.key(), appendText(d.begin(kind, x), why.Error(), maxText))
		}
	}
	pl.fail(why)
	if p.plans[pl.name] == pl {
		delete(p.plans, pl.name)
	}
	pl.release()
}
