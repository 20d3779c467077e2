package peer

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/text"
)

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

// begin starts a letter to the other peer of x: its kind, the attempt of this peer, and that of the other one.
func (d *draft) begin(kind byte, x *pair) []byte {
	b := binary.LittleEndian.AppendUint64([]byte{kind}, d.attempt)
	return binary.LittleEndian.AppendUint64(b, x.attempt)
}

// key is the key of the letters about the plan.
func (d *draft) key() string { return planKey + d.plan.name }

// planKey is the beginning of the keys of letters about plans.
const planKey = "p:"

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
			body := x.appendProposal(d.begin(letterProposal, x))
			if err = p.letters.checkSize(d.op(), len(body)); err == nil {
				r.letters.post(d.key(), body)
				x.proposed, x.session = true, r.session
			}
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
			if moves[k].Merge == Overwrite { // else this end merges
				x.forms[i][k].place = r.reach(&moves[k].View, rights)
			}
		}
	}
}

// appendProposal encodes the moves.
func (x *pair) appendProposal(b []byte) []byte {
	for i, moves := range [][]Move{x.sends, x.recvs} {
		b = binary.AppendUvarint(b, uint64(len(moves)))
		for k := range moves {
			b = binary.LittleEndian.AppendUint64(b, moves[k].ID)
			b = append(b, byte(moves[k].Wire), byte(moves[k].Merge))
			b = x.forms[i][k].append(b)
		}
	}
	return append(b, x.draft.options.encode())
}

// readProposals waits for the proposals of all other peers, before any are compared. So everybody can be told what does
// not fit.
//
// When a plan does not fit at another peer, the proposals of the others are still read, so that they can be told as
// well. A peer that has not proposed within graceTime is told nothing.
func (d *draft) readProposals(ctx context.Context) (err error) {
	for _, x := range d.pairs {
		if failed := d.readProposal(ctx, x); failed != nil && err == nil {
			err = failed
			if !errors.Is(err, stepvan.ErrRemote) || errors.As(err, new(gaveUpError)) {
				break
			}
			d.ignoreRejection()
			short, cancel := context.WithTimeout(ctx, graceTime)
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

// graceTime is how long a peer whose plan was rejected waits for the proposals of the others.
const graceTime = time.Second

// ignoreRejection lets this peer wait for others although the plan was rejected.
func (d *draft) ignoreRejection() {
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
		if why := x.fits(); why != nil {
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
			x.attempt = l.from
			x.theirs, x.options = [2][]proposed{l.moves(), l.moves()}, l.options()
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
	return d.accept(x, &l)
}

// accept takes a proposal, and tells the other peer which attempt of each belong together.
func (d *draft) accept(x *pair, l *letter) error {
	x.theirs, x.options = [2][]proposed{l.moves(), l.moves()}, l.options()
	if err := l.end(); err != nil {
		return d.expel(x, err)
	}
	p := d.plan.p
	p.mu.Lock()
	defer p.unlock()
	r := p.remotes[x.rank]
	x.attempt = l.from
	if err := d.check(); err != nil {
		return err
	}
	r.letters.post(d.key(), d.begin(letterPaired, x))
	return nil
}

// awaitPairs waits until all other peers have read the proposal of this attempt. One that has answered an earlier
// attempt of this peer, and has failed with that, proposes anew.
func (d *draft) awaitPairs(ctx context.Context) error {
	for _, x := range d.pairs {
		for paired := d.isSelf(x); !paired; {
			l, err := d.read(ctx, x, func(l *letter) bool {
				return l.kind == letterProposal && l.from > x.attempt ||
					l.kind == letterPaired && l.from == x.attempt && l.to == d.attempt
			})
			if paired = err == nil && l.kind == letterPaired; err == nil && !paired {
				err = d.accept(x, &l)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// expel ends the session with a peer whose letter breaks the protocol, and names the peer.
func (d *draft) expel(x *pair, err error) error {
	p := d.plan.p
	p.mu.Lock()
	r := p.remotes[x.rank]
	s, cause := r.session, r.failure(d.op(), fmt.Errorf("%w: %w", stepvan.ErrPeerLost, err))
	p.unlock()
	if s != nil {
		sessionHandler{p: p}.breakOff(s, err)
	}
	return cause
}

// read waits for a letter of the other peer. It passes over those of attempts that are over.
func (d *draft) read(ctx context.Context, x *pair, want func(*letter) bool) (l letter, err error) {
	for {
		body, err := d.plan.p.letters.read(ctx, d, d.op(), x.rank, d.key())
		if err != nil {
			return letter{}, err
		}
		if l = readLetter(body); l.err != nil {
			return l, d.expel(x, l.err)
		}
		if want(&l) {
			return l, nil
		}
	}
}

// rejects reports whether a letter ends an attempt of its sender.
func (l *letter) rejects() bool {
	return l.err == nil && (l.kind == letterRejected || l.kind == letterGivenUp)
}

// rejection is the error that a letter brings which ends an attempt.
func (l *letter) rejection(r *remote, op string) error {
	err := fmt.Errorf("%w: %s", stepvan.ErrRemote, text.Line(l.text(maxText), maxText))
	if l.kind == letterGivenUp {
		err = gaveUpError{err}
	}
	return r.failure(op, err)
}

// gaveUpError says that a peer did not wait any longer, or has lost another one. The plan may fit, so the peers may try
// again.
type gaveUpError struct{ error }

// Unwrap returns the error without the remark.
func (e gaveUpError) Unwrap() error { return e.error }

// gaveUp reports whether a peer has given up because of why. mine says that this peer was the first that did so.
func gaveUp(why error) (yes, mine bool) {
	if errors.As(why, new(gaveUpError)) {
		return true, false
	}
	mine = errors.Is(why, context.Canceled) || errors.Is(why, context.DeadlineExceeded) || errors.Is(why, stepvan.ErrPeerLost)
	return mine, mine
}

// noteRejection takes the rejection of another peer. A peer that gives up without an answer to this attempt may try
// again. So what it gave up is dropped, and this attempt waits for the next one. Under Peer.mu.
func (d *draft) noteRejection(r *remote, l *letter) {
	switch {
	case l.to != d.attempt:
		r.letters.dropAttempt(d.key(), l.from)
	case d.failed == nil:
		d.failed = l.rejection(r, d.op())
		d.plan.p.letters.wakeAll(d, d.failed)
	}
}

// dropAttempt drops the letters of an attempt that the peer has given up.
func (b *letterbox) dropAttempt(key string, attempt uint64) {
	list := slices.Clone(b.came[key])
	for range list {
		b.take(key)
	}
	for _, body := range list {
		if l := readLetter(body); l.from != attempt {
			b.came[key] = append(b.came[key], body)
			b.count++
			b.bytes += len(body)
		}
	}
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
