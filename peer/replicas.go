package peer

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/tensor"
)

// PlanOptions change how the elements of a plan travel. All peers of a plan give the same options.
type PlanOptions struct {
	// Replicas has the receivers of the same elements pass them on to each other, so that each network link carries one
	// copy (a chained broadcast). Sends are replicas when they have the same view and go to different peers, whose
	// memory this one does not share. They have on their way the type that their receivers have. All other moves travel
	// as without the option. Receivers that share memory with each other get one copy together.
	//
	// The handle of a receiver that passes elements on completes when it has passed on all of them. So it waits until
	// the receivers behind it have begun the run, too. When one of them dies, the run fails.
	Replicas bool
}

// PlanWith is Plan with options. When they differ between two peers, the error is a [*MismatchError] at both.
func (p *Peer) PlanWith(ctx context.Context, name string, sends, recvs []Move, o PlanOptions) (*Plan, error) {
	return planFor(ctx, p, nil, name, sends, recvs, o)
}

// planFor is [Peer.PlanWith] for an operation of a group, whose failure at another member ends it, or for none.
func planFor(ctx context.Context, p *Peer, g *Group, name string, sends, recvs []Move, o PlanOptions) (*Plan, error) {
	if err := checkPlanName(name); err != nil {
		return nil, err
	}
	d := &draft{plan: &Plan{p: p, name: name}, options: o, group: g}
	return negotiate(ctx, d, sends, recvs)
}

// optionReplicas is the bit of Replicas in a proposal.
const optionReplicas = 1

// encode returns the options as a proposal has them.
func (o PlanOptions) encode() (bits byte) {
	if o.Replicas {
		bits |= optionReplicas
	}
	return bits
}

// options reads them.
func (d *decoder) options() (o PlanOptions) {
	bits := d.u8()
	if bits&^optionReplicas != 0 {
		d.fail("options", "a plan has options %#x, and only %#x are known", bits, optionReplicas)
	}
	o.Replicas = bits&optionReplicas != 0
	return o
}

// compareOptions checks that both peers of a pair have given the same options.
func (x *pair) compareOptions() error {
	mine, theirs := x.draft.options.Replicas, x.options.Replicas
	if mine == theirs {
		return nil
	}
	return &MismatchError{
		Op: x.draft.op(), Peer: x.name, What: "PlanOptions", same: "options",
		Mine: fmt.Sprint("Replicas ", mine), Theirs: fmt.Sprint("Replicas ", theirs),
	}
}

// chainDraft is a draft whose moves may travel along chains.
type chainDraft struct{ draft *draft }

// chain is how receivers pass some moves of a source on. The source makes it, because it alone knows which of its moves
// have the same view.
type chain struct{ members []*chainMember } // by rank, from that of the source on and round

// chainMember is a receiver of a chain.
type chainMember struct {
	pair  *pair
	from  int   // the member that passes on to this one; -1: the source
	moves []int // their places among the sends to the member. All members have them in one order
}

// replicated is a view that goes to several receivers.
type replicated struct {
	at   uintptr
	form form
	wire tensor.DType
	copy int // a receiver may have several copies of it
}

// replicable is the view of send i, if receivers may pass its elements on: they keep them as they travel, and this peer
// does not share memory with them.
func (x *pair) replicable(i int) (r replicated, ok bool) {
	m, t := &x.sends[i], &x.theirs[1][i]
	r = replicated{at: uintptr(address(&m.View)), form: formOf(&m.View), wire: cmp.Or(m.Wire, m.View.DType())}
	return r, t.merge == Overwrite && t.form.dtype == r.wire && t.form.elements() > 0
}

// findChains finds the chains of which this peer is the source.
func (w chainDraft) findChains() (list []*chain) {
	d := w.draft
	type end struct {
		pair *pair
		move int
	}
	ends := map[replicated][]end{}
	var order []replicated
	self, _ := slices.BinarySearchFunc(d.pairs, d.plan.p.rank, func(x *pair, r stepvan.Rank) int { return cmp.Compare(x.rank, r) })
	for _, x := range slices.Concat(d.pairs[self:], d.pairs[:self]) { // the chains of several sources end at different peers
		if d.isSelf(x) || len(x.sends) == 0 || x.session.Caps().Views {
			continue
		}
		copies := map[replicated]int{}
		for i := range x.sends {
			r, ok := x.replicable(i)
			if !ok {
				continue
			}
			r.copy, copies[r] = copies[r], copies[r]+1
			if ends[r] == nil {
				order = append(order, r)
			}
			ends[r] = append(ends[r], end{x, i})
		}
	}
	known := map[string]*chain{} // by the ranks of their members
	for _, r := range order {
		if len(ends[r]) < 2 {
			continue
		}
		var ranks []byte
		for _, e := range ends[r] {
			ranks = binary.LittleEndian.AppendUint32(ranks, uint32(e.pair.rank))
		}
		c := known[string(ranks)]
		if c == nil {
			c = &chain{}
			for _, e := range ends[r] {
				c.members = append(c.members, &chainMember{pair: e.pair})
			}
			w.order(c)
			known[string(ranks)], list = c, append(list, c)
		}
		for i, e := range ends[r] {
			c.members[i].moves = append(c.members[i].moves, e.move)
		}
	}
	return list
}

// order gives each member the one that passes on to it. The first member of each machine gets the elements from the
// first one of the machine before it. The others of its machine get them from that first one.
func (w chainDraft) order(c *chain) {
	d := w.draft
	p := d.plan.p
	p.mu.Lock()
	defer p.unlock()
	first := map[string]int{}
	last := -1
	for i, m := range c.members {
		machine := p.remotes[m.pair.rank].Machine
		if at, ok := first[machine]; ok && machine != "" {
			m.from = at
			continue
		}
		m.from, last = last, i
		first[machine] = i
	}
}

// makeChains finds the chains that this peer is in, and tells those that it is the source of. Then it meets the peers
// that it passes elements on to, or gets them from.
//
// A source tells each of its receivers once, also of no chain. It knows the attempts of all receivers, and so they
// understand each other, although they have not proposed to each other.
func (w chainDraft) makeChains(ctx context.Context) error {
	d := w.draft
	chains := w.findChains()
	pairs := slices.Clone(d.pairs) // those with moves
	for _, x := range pairs {
		if err := w.sendChains(x, chains); err != nil {
			return err
		}
	}
	for number, c := range chains {
		w.takePlace(uint32(number), c)
	}
	for _, x := range pairs {
		if err := w.readChains(ctx, x); err != nil {
			return err
		}
	}
	if err := d.plan.p.Connect(ctx, d.ranks()...); err != nil {
		return err
	}
	return w.meetNeighbors(ctx)
}

// sendChains tells a receiver its places in the chains of this peer.
func (w chainDraft) sendChains(x *pair, chains []*chain) error {
	d := w.draft
	if d.isSelf(x) || len(x.sends) == 0 {
		return nil
	}
	n := 0
	var places []byte
	for number, c := range chains {
		for i, m := range c.members {
			if m.pair == x {
				n++
				places = w.appendPlace(binary.LittleEndian.AppendUint32(places, uint32(number)), c, i)
			}
		}
	}
	p := d.plan.p
	p.mu.Lock()
	defer p.unlock()
	if err := d.check(); err != nil {
		return err
	}
	body := append(binary.AppendUvarint(d.begin(letterChains, x), uint64(n)), places...)
	if err := p.letters.checkSize(d.op(), len(body)); err != nil {
		return err
	}
	p.remotes[x.rank].letters.post(d.key(), body)
	return nil
}

// appendPlace encodes the place of a member: the one that passes on to it, those that it passes on to, and its moves.
func (w chainDraft) appendPlace(b []byte, c *chain, at int) []byte {
	d := w.draft
	m := c.members[at]
	rank, attempt := d.plan.p.rank, d.attempt
	if m.from >= 0 {
		rank, attempt = c.members[m.from].pair.rank, c.members[m.from].pair.attempt
	}
	b = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(b, uint32(rank)), attempt)
	var next []byte
	n := 0
	for _, other := range c.members {
		if other.from == at {
			n++
			next = binary.LittleEndian.AppendUint32(next, uint32(other.pair.rank))
			next = binary.LittleEndian.AppendUint64(next, other.pair.attempt)
		}
	}
	b = append(binary.AppendUvarint(b, uint64(n)), next...)
	b = binary.AppendUvarint(b, uint64(len(m.moves)))
	for _, i := range m.moves {
		b = binary.LittleEndian.AppendUint64(b, m.pair.sends[i].ID)
	}
	return b
}

// takePlace takes the place of the source in a chain. The moves of the chain leave the lists of its members.
func (w chainDraft) takePlace(number uint32, c *chain) {
	d := w.draft
	for _, m := range c.members {
		if m.from < 0 {
			h := &hop{source: d.plan.p.rank, number: number, out: true}
			for _, i := range m.moves {
				h.moves = append(h.moves, m.pair.sends[i])
			}
			m.pair.hops = append(m.pair.hops, h)
		}
		m.pair.chained[0] = append(m.pair.chained[0], m.moves...)
	}
}

// place is what a source tells a receiver of a chain.
type place struct {
	number uint32
	from   neighbor
	next   []neighbor
	moves  []uint64 // their IDs
}

// neighbor is another member of a chain, and its attempt to make the plan.
type neighbor struct {
	rank    stepvan.Rank
	attempt uint64
}

// leastPlace is how many bytes a place takes at least.
const (
	leastNeighbor = 4 + 8
	leastPlace    = 4 + leastNeighbor + 2
)

// count reads a number of objects that take so many bytes at least.
func (d *decoder) count(what string, least int) int {
	n := d.uvarint()
	if n > uint64(len(d.rest)/least) {
		d.fail(what, "%d %s in %d bytes", n, what, len(d.rest))
		return 0
	}
	return int(n)
}

func (d *decoder) neighbor() neighbor { return neighbor{stepvan.Rank(int32(d.u32())), d.u64()} }

// places reads the places in chains.
func (d *decoder) places() []place {
	list := make([]place, d.count("chains", leastPlace))
	for i := range list {
		c := &list[i]
		c.number, c.from = d.u32(), d.neighbor()
		c.next = make([]neighbor, d.count("members", leastNeighbor))
		for k := range c.next {
			c.next[k] = d.neighbor()
		}
		c.moves = make([]uint64, d.count("moves", 8))
		for k := range c.moves {
			c.moves[k] = d.u64()
		}
		if d.err == nil && (len(c.moves) == 0 || i > 0 && c.number <= list[i-1].number) {
			d.fail("chains", "chain %d has %d moves, and comes behind chain %d", c.number, len(c.moves), list[max(i-1, 0)].number)
		}
	}
	if d.err != nil {
		return nil
	}
	return list
}

// readChains waits until a source has told the places of this peer in its chains, and takes them.
func (w chainDraft) readChains(ctx context.Context, x *pair) error {
	d := w.draft
	if d.isSelf(x) || len(x.recvs) == 0 {
		return nil
	}
	l, err := d.read(ctx, x, func(l *letter) bool {
		return l.kind == letterChains && l.from == x.attempt && l.to == d.attempt
	})
	if err != nil {
		return err
	}
	places := l.places()
	if err := l.end(); err != nil {
		return d.expel(x, err)
	}
	taken := make([]bool, len(x.recvs))
	for i := range places {
		if err := w.receivePlace(x, &places[i], taken); err != nil {
			return d.expel(x, err)
		}
	}
	return nil
}

// receivePlace takes a place of this peer in a chain of x. It trusts nothing.
func (w chainDraft) receivePlace(x *pair, c *place, taken []bool) error {
	d := w.draft
	in := &hop{source: x.rank, number: c.number}
	for _, id := range c.moves {
		i, found := slices.BinarySearchFunc(x.recvs, id, func(m Move, id uint64) int { return cmp.Compare(m.ID, id) })
		if !found || taken[i] {
			return errs.Protocol("chains", 17, "a chain has move %d, which it does not bring, or has twice", id)
		}
		m, t := &x.recvs[i], &x.theirs[0][i]
		if m.Merge != Overwrite || m.View.DType() != cmp.Or(m.Wire, t.form.dtype) || t.form.elements() == 0 {
			return errs.Protocol("chains", 17, "a chain has move %d, whose elements are not kept as they travel", id)
		}
		taken[i] = true
		in.moves = append(in.moves, *m)
		x.chained[1] = append(x.chained[1], i)
	}
	known := []stepvan.Rank{d.plan.p.Rank()}
	for i, n := range slices.Concat([]neighbor{c.from}, c.next) {
		y, err := w.neighborIn(n)
		if err == nil && (slices.Contains(known, n.rank) || i > 0 && n.rank == x.rank) {
			err = errs.Protocol("chains", 17, "peer %d is in a chain twice", n.rank)
		}
		if err != nil {
			return err
		}
		known = append(known, n.rank)
		h := in
		if i > 0 {
			h = &hop{source: x.rank, number: c.number, out: true, from: in, moves: in.moves}
		}
		y.hops = append(y.hops, h)
	}
	return nil
}

// neighborIn returns the pair with a neighbor in a chain.
func (w chainDraft) neighborIn(n neighbor) (*pair, error) {
	d := w.draft
	p := d.plan.p
	p.mu.Lock()
	defer p.unlock()
	for _, x := range d.pairs {
		if x.rank == n.rank {
			return x, nil
		}
	}
	if n.rank < 0 || int(n.rank) >= len(p.remotes) || n.rank == p.rank || n.attempt == 0 {
		return nil, errs.Protocol("chains", 17, "peer %d in its attempt %d is in a chain", n.rank, n.attempt)
	}
	x := &pair{draft: d, rank: n.rank, name: p.remotes[n.rank].Name, attempt: n.attempt, options: d.options}
	d.pairs = append(d.pairs, x)
	return x, nil
}
