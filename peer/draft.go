package peer

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"
	"unsafe"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/text"
)

// draft is a plan that the peers have not agreed on. The goroutine that calls Peer.Plan uses it.
//
// Each peer sends each other one that it names a proposal: the forms of their moves at its end. From the two proposals
// both ends derive the same routes. Then each sends a verdict to all: it agrees, or it rejects the plan and says why.
//
// Each attempt to make a plan has a number. A letter of an attempt that is over is passed over.
type draft struct {
	plan    *Plan
	pairs   []*pair
	attempt uint64
	failed  error // another peer rejects the plan. Under Peer.mu
}

// pair is what a plan moves between this peer and another.
type pair struct {
	rank         stepvan.Rank
	name         string
	sends, recvs []Move        // by ID
	forms        [2][]form     // of sends and of recvs, as the other peer is told
	proposed     bool          // the other peer has been told
	attempt      uint64        // of the other peer; 0 before its proposal
	theirs       [2][]proposed // its sends and receives
	out, in      *edge         // nil without moves
}

// Kinds of letters about a plan.
const (
	letterProposal = 1 + iota
	letterAgreed
	letterRejected
)

// draft checks the moves and sorts them by peer.
func (p *Peer) draft(name string, sends, recvs []Move) (*draft, error) {
	if name == "" || len(name) > maxName {
		return nil, errs.Invalid("plan: name: wrong length (got %d, want 1 to %d bytes): give another", len(name), maxName)
	}
	d := &draft{plan: &Plan{p: p, name: name}}
	pl := d.plan
	pl.own.copy, pl.own.done = pl.local.copyIn, pl.copied
	pairs := map[stepvan.Rank]*pair{}
	for _, list := range []struct {
		moves []Move
		sends bool
	}{{sends, true}, {recvs, false}} {
		for _, m := range list.moves {
			if err := pl.checkMove(&m, list.sends); err != nil {
				return nil, err
			}
			x := pairs[m.Peer]
			if x == nil {
				x = &pair{rank: m.Peer}
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
	return d, errors.Join(d.checkIDs(), d.register())
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
	if err := check(&m.View); err != nil {
		return fmt.Errorf("plan %s: %s: %w", pl.name, m.name(), err)
	}
	return nil
}

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
	p.attempts++
	d.attempt = p.attempts
	for _, x := range d.pairs {
		p.remotes[x.rank].letters.dropWithdrawn(d.key())
	}
	return nil
}

// dropWithdrawn drops the letters of attempts that the peer has given up.
func (b *letterbox) dropWithdrawn(key string) {
	var withdrawn uint64
	for _, body := range b.came[key] {
		if l := readLetter(body); l.kind == letterRejected {
			withdrawn = max(withdrawn, l.from)
		}
	}
	b.filter(key, func(l *letter) bool { return l.from > withdrawn })
}

// check implements company.
func (d *draft) check() error {
	if d.failed != nil {
		return d.failed
	}
	if err := d.plan.broken; err != nil {
		return errs.Ended(d.op(), err)
	}
	return d.plan.p.checkLiving(d.op(), d.ranks())
}

// has implements company.
func (d *draft) has(rank stepvan.Rank) bool {
	return slices.ContainsFunc(d.pairs, func(x *pair) bool { return x.rank == rank })
}

// hear takes the rejection of another peer, and reports whether body is one. Under Peer.mu.
func (d *draft) hear(r *remote, body []byte) bool {
	l := readLetter(body)
	if l.kind != letterRejected {
		return false
	}
	if d.concerns(r, &l) && d.failed == nil {
		d.failed = r.failure(d.op(), fmt.Errorf("%w: %s", stepvan.ErrRemote, text.Line(l.text(maxText), maxText)))
		d.plan.p.wakeAll(d, d.failed)
	}
	return true
}

// concerns reports whether a rejection is about this attempt. A peer that has not read the proposal of this one gives
// up an attempt of its own, and may try again.
func (d *draft) concerns(r *remote, l *letter) bool {
	if l.to != 0 {
		return l.to == d.attempt
	}
	i := slices.IndexFunc(d.pairs, func(x *pair) bool { return x.rank == r.Rank })
	if i < 0 || r.letters.dropProposal(d.key(), l.from) {
		return false
	}
	return l.from > r.letters.attempt[d.key()] || l.from == d.pairs[i].attempt
}

// dropProposal drops the proposal of an attempt that the peer has given up, if it waits.
func (b *letterbox) dropProposal(key string, attempt uint64) bool {
	return b.filter(key, func(l *letter) bool { return l.from != attempt })
}

// filter keeps the letters about a plan for which keep returns true, and reports whether there were others.
func (b *letterbox) filter(key string, keep func(*letter) bool) (dropped bool) {
	list := slices.Clone(b.came[key])
	for range list {
		b.take(key)
	}
	for _, body := range list {
		if l := readLetter(body); keep(&l) {
			b.came[key] = append(b.came[key], body)
			b.count++
			b.bytes += len(body)
		} else {
			dropped = true
		}
	}
	return dropped
}

// key is the key of the letters about the plan.
func (d *draft) key() string { return planKey + d.plan.name }

// planKey is the beginning of the keys of letters about plans.
const planKey = "p:"

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
	for _, x := range d.pairs {
		if err := d.meet(x); err != nil {
			return nil, err
		}
	}
	if err := d.tellVerdict(); err != nil {
		return nil, err
	}
	for _, x := range d.pairs {
		if err := d.hearVerdict(ctx, x); err != nil {
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
	d.plan.draft = nil
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

// propose sends each peer the forms of the moves with it.
func (d *draft) propose() error {
	p := d.plan.p
	for _, x := range d.pairs {
		if d.isSelf(x) {
			continue
		}
		p.mu.Lock()
		r := p.remotes[x.rank]
		var err error
		if r.session == nil {
			err = r.failure(d.op(), cmp.Or(r.dead, stepvan.ErrPeerLost))
		} else {
			r.describe(x)
			r.letters.post(d.key(), x.appendProposal(d.begin(letterProposal, x)))
			x.proposed = true
		}
		p.unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// describe makes the forms of the moves with r.
func (r *remote) describe(x *pair) {
	for i, moves := range [][]Move{x.sends, x.recvs} {
		rights := link.RightRead
		if i == 1 {
			rights = link.RightWrite
		}
		x.forms[i] = make([]form, len(moves))
		for k := range moves {
			x.forms[i][k] = formOf(&moves[k].View)
			x.forms[i][k].place = r.reach(&moves[k].View, rights)
		}
	}
}

// begin starts a letter to the other peer of x: its kind, the attempt of this peer, and that of the other one.
func (d *draft) begin(kind byte, x *pair) []byte {
	b := binary.LittleEndian.AppendUint64([]byte{kind}, d.attempt)
	return binary.LittleEndian.AppendUint64(b, x.attempt)
}

// letter is the beginning of a letter about a plan.
type letter struct {
	kind    uint8
	from    uint64 // attempt of its sender
	to      uint64 // attempt that it answers; 0 for a proposal
	decoder        // of the rest
}

func readLetter(body []byte) (l letter) {
	l.decoder = decode(body)
	l.kind, l.from, l.to = l.u8(), l.u64(), l.u64()
	return l
}

// appendProposal encodes the moves.
func (x *pair) appendProposal(b []byte) []byte {
	for i, moves := range [][]Move{x.sends, x.recvs} {
		b = binary.AppendUvarint(b, uint64(len(moves)))
		for k := range moves {
			b = binary.LittleEndian.AppendUint64(b, moves[k].ID)
			b = x.forms[i][k].append(b)
		}
	}
	return b
}

// proposed is a move at the other end.
type proposed struct {
	id   uint64
	form form
}

// moves reads a list of moves.
func (d *decoder) moves() []proposed {
	n := d.uvarint()
	if n > uint64(len(d.rest)) { // each takes more than a byte
		d.fail("moves", "%d moves in %d bytes", n, len(d.rest))
		return nil
	}
	list := make([]proposed, 0, n)
	for range n {
		m := proposed{d.u64(), d.form()}
		if d.err != nil {
			return nil
		}
		if len(list) > 0 && m.id <= list[len(list)-1].id {
			d.fail("moves", "move %d comes behind move %d", m.id, list[len(list)-1].id)
			return nil
		}
		list = append(list, m)
	}
	return list
}

// readProposals waits for the proposals of all other peers, before any are compared. So everybody can be told what does
// not fit.
//
// When a peer rejects the plan, the proposals of the others are still read, so that they can be told as well. A peer
// that has not proposed within lingerTime is told nothing.
func (d *draft) readProposals(ctx context.Context) (err error) {
	for _, x := range d.pairs {
		if failed := d.readProposal(ctx, x); failed != nil && err == nil {
			err = failed
			if !errors.Is(err, stepvan.ErrRemote) {
				break
			}
			d.linger()
			short, cancel := context.WithTimeout(ctx, lingerTime)
			defer cancel()
			ctx = short
			if x.attempt == 0 {
				_ = d.readProposal(ctx, x)
			}
		}
	}
	if err != nil {
		err = d.explain(err)
	}
	return err
}

// lingerTime is how long a peer whose plan was rejected waits for the proposals of the others.
const lingerTime = time.Second

// linger has waits go on although the plan was rejected.
func (d *draft) linger() {
	p := d.plan.p
	p.mu.Lock()
	defer p.unlock()
	d.failed = nil
}

// explain returns what does not fit between this peer and another one, if that is why the other rejects the plan. It
// returns other errors as they are.
func (d *draft) explain(err error) error {
	if !errors.Is(err, stepvan.ErrRemote) {
		return err
	}
	for _, x := range d.pairs {
		if x.attempt == 0 {
			d.takeProposal(x)
		}
		if x.attempt == 0 {
			continue
		}
		if why := cmp.Or(d.compare(x, x.sends, x.theirs[1], "receives"), d.compare(x, x.recvs, x.theirs[0], "sends")); why != nil {
			return why
		}
	}
	return err
}

// takeProposal reads the proposal of the other peer if it is there.
func (d *draft) takeProposal(x *pair) {
	p := d.plan.p
	p.mu.Lock()
	defer p.unlock()
	b := &p.remotes[x.rank].letters
	if b.nextProposal(d.key()) == 0 {
		return
	}
	for body, ok := b.take(d.key()); ok; body, ok = b.take(d.key()) {
		if l := readLetter(body); l.kind == letterProposal {
			x.attempt, b.attempt[d.key()] = l.from, l.from
			x.theirs = [2][]proposed{l.moves(), l.moves()}
			return
		}
	}
}

// readProposal waits for what the other peer brings to the plan.
func (d *draft) readProposal(ctx context.Context, x *pair) error {
	if d.isSelf(x) {
		return nil
	}
	l, err := d.read(ctx, x, func(l *letter) bool { return l.kind == letterProposal })
	if err != nil {
		return err
	}
	d.accept(x, l.from)
	x.theirs = [2][]proposed{l.moves(), l.moves()}
	return l.end()
}

// accept notes which attempt of the other peer this plan is made in.
func (d *draft) accept(x *pair, attempt uint64) {
	p := d.plan.p
	p.mu.Lock()
	defer p.unlock()
	x.attempt = attempt
	p.remotes[x.rank].letters.attempt[d.key()] = attempt
}

// read waits for a letter of the other peer. It passes over those of attempts that are over.
func (d *draft) read(ctx context.Context, x *pair, want func(*letter) bool) (l letter, err error) {
	for {
		body, err := d.plan.p.read(ctx, d, d.op(), x.rank, d.key())
		if err != nil {
			return letter{}, err
		}
		if l = readLetter(body); l.err != nil || want(&l) {
			return l, l.err
		}
	}
}

// meet compares the two proposals of a pair, and makes its edges.
func (d *draft) meet(x *pair) (err error) {
	if d.isSelf(x) {
		return d.meetSelf(x)
	}
	sends, recvs := x.theirs[0], x.theirs[1]
	if err := d.compare(x, x.sends, recvs, "receives"); err != nil {
		return err
	}
	if err := d.compare(x, x.recvs, sends, "sends"); err != nil {
		return err
	}
	d.openEdges(x)
	if x.out != nil {
		err = d.fill(x, x.out, x.sends, x.forms[0], recvs)
	}
	if x.in != nil && err == nil {
		err = d.fill(x, x.in, x.recvs, x.forms[1], sends)
	}
	return err
}

// compare checks that each move at one end has its other end, and that both fit.
func (d *draft) compare(x *pair, mine []Move, theirs []proposed, verb string) error {
	for i := range max(len(mine), len(theirs)) {
		e := &MismatchError{Op: d.op(), Peer: x.name}
		switch {
		case i >= len(theirs) || i < len(mine) && mine[i].ID < theirs[i].id:
			m := formOf(&mine[i].View)
			e.What, e.Mine, e.Theirs = mine[i].name(), m.String(), "nothing: it "+verb+" no move of this ID"
			return e
		case i >= len(mine) || theirs[i].id < mine[i].ID:
			e.What, e.Mine, e.Theirs = fmt.Sprintf("move %d", theirs[i].id), "no move of this ID", theirs[i].form.String()
			return e
		}
		m := formOf(&mine[i].View)
		if t := &theirs[i].form; t.dtype != m.dtype || t.bytes() != m.bytes() {
			e.What, e.Mine, e.Theirs = mine[i].name(), m.String(), t.String()
			return e
		}
	}
	return nil
}

// openEdges gives the edges of a pair their numbers.
func (d *draft) openEdges(x *pair) {
	pl := d.plan
	p := pl.p
	p.mu.Lock()
	defer p.unlock()
	add := func(out bool) *edge {
		e := &edge{remote: p.remotes[x.rank], out: out, owner: pl}
		e.open()
		pl.edges = append(pl.edges, e)
		pl.loud++
		pl.sends = pl.sends || out
		return e
	}
	if len(x.sends) > 0 {
		x.out = add(true)
	}
	if len(x.recvs) > 0 {
		x.in = add(false)
	}
}

// fill gives an edge its boxes. Where this process sees the memory of the other end, it maps that memory.
func (d *draft) fill(x *pair, e *edge, moves []Move, mine []form, theirs []proposed) error {
	seen, err := d.see(x, e, mine, theirs)
	if err != nil {
		return err
	}
	for i := range moves {
		src, dst := &mine[i], &theirs[i].form
		if !e.out {
			src, dst = dst, src
		}
		w, err := route(src, dst)
		if err != nil {
			return fmt.Errorf("plan %s: %s: %s: %w", d.plan.name, x.name, moves[i].name(), err)
		}
		at := address(&moves[i].View)
		switch {
		case !src.place.IsZero():
			e.viewed.add(&w, at, seen.pointer(theirs[i].form.place, !e.out))
		case !dst.place.IsZero():
			e.written.add(&w, at, seen.pointer(theirs[i].form.place, e.out))
		default:
			e.parcels.add(&w, at, nil)
		}
	}
	return nil
}

// ranges are the parts of the other end's memory that this process sees, by grant.
type ranges map[link.GrantID]*seenRange

type seenRange struct {
	generation uint32
	from, to   int64
	base       unsafe.Pointer
}

// pointer is where a place of the other end is in this process, if needed.
func (s ranges) pointer(at link.Target, needed bool) unsafe.Pointer {
	if r := s[at.Grant]; needed && r != nil {
		return unsafe.Add(r.base, at.Offset-r.from)
	}
	return nil
}

// see maps what this end copies from, or to. One view for each grant holds all of it.
func (d *draft) see(x *pair, e *edge, mine []form, theirs []proposed) (ranges, error) {
	all := ranges{}
	for i := range theirs {
		f := &theirs[i].form
		if f.place.IsZero() || f.span() == 0 || e.out && !mine[i].place.IsZero() {
			continue // in the last case, the other end copies
		}
		lo, hi := f.place.Offset, f.place.Offset+f.span()
		r := all[f.place.Grant]
		if r == nil {
			r = &seenRange{generation: f.place.Generation, from: lo, to: hi}
			all[f.place.Grant] = r
		}
		r.from, r.to = min(r.from, lo), max(r.to, hi)
	}
	rights := link.RightRead
	if e.out {
		rights = link.RightWrite
	}
	for grant, r := range all {
		v, err := e.link.Map(link.Target{Grant: grant, Generation: r.generation, Offset: r.from}, r.to-r.from, rights)
		if err != nil {
			return nil, &stepvan.OpError{Op: d.op(), Peer: x.name, Van: e.link.Van(), Err: fmt.Errorf("this process cannot see its memory: %w", err)}
		}
		e.views = append(e.views, v)
		r.base = pointer(v.Bytes)
	}
	return all, nil
}

// meetSelf pairs the moves within this process.
func (d *draft) meetSelf(x *pair) error {
	pl := d.plan
	theirs := make([]proposed, len(x.sends))
	for i := range x.sends {
		theirs[i] = proposed{x.sends[i].ID, formOf(&x.sends[i].View)}
	}
	if err := d.compare(x, x.recvs, theirs, "sends"); err != nil {
		return err
	}
	for i := range x.recvs {
		dst := formOf(&x.recvs[i].View)
		w, err := route(&theirs[i].form, &dst)
		if err != nil {
			return fmt.Errorf("plan %s: %s: %w", pl.name, x.recvs[i].name(), err)
		}
		pl.local.add(&w, address(&x.recvs[i].View), address(&x.sends[i].View))
	}
	return nil
}

// tellVerdict tells the other peers that this one agrees, and how it calls the edges.
func (d *draft) tellVerdict() error {
	p := d.plan.p
	p.mu.Lock()
	defer p.unlock()
	if err := d.check(); err != nil {
		return err
	}
	for _, x := range d.pairs {
		if x.out == nil && x.in == nil {
			continue
		}
		b := d.begin(letterAgreed, x)
		b = binary.LittleEndian.AppendUint64(b, x.out.number())
		b = binary.LittleEndian.AppendUint64(b, x.in.number())
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

// hearVerdict waits for the verdict of the other peer.
func (d *draft) hearVerdict(ctx context.Context, x *pair) error {
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
	if err := l.end(); err != nil {
		return err
	}
	if (in == 0) != (x.in == nil) || (out == 0) != (x.out == nil) {
		return errs.Protocol("kind", 0, "plan %s: %s sends letter %d in place of a verdict", d.plan.name, x.name, l.kind)
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
	return nil
}

// withdraw ends a draft that has failed, and tells the others.
func (d *draft) withdraw(why error) {
	pl := d.plan
	p := pl.p
	p.mu.Lock()
	defer p.unlock()
	pl.closed, pl.draft = true, nil
	for _, x := range d.pairs {
		if r := p.remotes[x.rank]; x.proposed && r.session != nil {
			if x.attempt == 0 {
				x.attempt = r.letters.nextProposal(d.key())
			}
			r.letters.post(d.key(), appendText(d.begin(letterRejected, x), why.Error(), maxText))
		}
	}
	pl.fail(why)
	if p.plans[pl.name] == pl {
		delete(p.plans, pl.name)
	}
	pl.release()
}

// nextProposal is the attempt of the first proposal that has not been read, or 0.
func (b *letterbox) nextProposal(key string) uint64 {
	for _, body := range b.came[key] {
		if l := readLetter(body); l.kind == letterProposal {
			return l.from
		}
	}
	return 0
}
