package peer

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/strided"
	"github.com/stepvan/stepvan/tensor"
)

// Broadcast copies the elements of v at one member to v at all others. root is the index of that member in
// [Group.Ranks]. The views have one type and one number of elements, and their shapes a common division. If they do
// not, the error is a [*MismatchError] at all members. v is borrowed until Broadcast returns. When ctx ends it, others
// may still use the memory of v, which cannot be closed until then. The same holds when a member is lost that has
// stopped, and not died.
func (g *Group) Broadcast(ctx context.Context, v tensor.Strided, root int) error {
	return g.collect(ctx, &collective{op: "broadcast", view: v, root: root}, func() error {
		if g.index == root {
			return checkSource(&v)
		}
		return checkDestination(&v)
	})
}

// Reduce merges the elements of v at all members, this one included, into a view of one member. root is the index of
// that member in [Group.Ranks]. The others may pass anything as into. The elements are merged in the order of the
// members, so the bits are the same each time. The views have one type, and else the rules of [Group.Broadcast] hold.
// into shares no element with v. op is not Overwrite.
func (g *Group) Reduce(ctx context.Context, v, into tensor.Strided, op Merge, root int) error {
	return g.collect(ctx, &collective{op: "reduce", view: v, into: into, merge: op, root: root}, func() error {
		if op == Overwrite || op >= mergeEnd {
			return errs.Invalid("merge: there is no such merge for a reduction (got %d, want 1 to %d): use the constants", op, mergeEnd-1)
		}
		if err := checkSource(&v); err != nil || g.index != root {
			return err
		}
		if err := checkDestination(&into); err != nil {
			return err
		}
		from, to := formOf(&v), formOf(&into)
		if from.dtype != to.dtype || from.elements() != to.elements() {
			return errs.Invalid("into: it does not fit (got %s, want %s): give a view of the same type and size", &to, &from)
		}
		at, places := v.Places(), into.Places()
		if share, sure := strided.Intersect(&at, &places); share || !sure {
			return errs.Invalid("into: it shares elements with the source: give it memory of its own")
		}
		return nil
	})
}

// collective is an operation of a group on views of all members.
type collective struct {
	op         string
	view, into tensor.Strided
	merge      Merge
	root       int
}

// collect runs an operation. check says what is wrong with the arguments at this member.
func (g *Group) collect(ctx context.Context, c *collective, check func() error) error {
	key, err := g.begin(c.op)
	if err != nil {
		return err
	}
	err = check()
	if c.root < 0 || c.root >= len(g.ranks) {
		err = errs.Invalid("root: there is no such member (got %d, want 0 to %d): give its index", c.root, len(g.ranks)-1)
	}
	if err == nil {
		err = g.compare(ctx, c, key)
	}
	if err == nil {
		err = g.move(ctx, c, key)
	}
	var mismatch *MismatchError
	if errors.As(err, &mismatch) && mismatch.Op == g.op(c.op) {
		g.note(err) // all members find it by themselves
		return err
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", g.op(c.op), err)
	}
	return g.end(err)
}

// compare tells all members what this one brings, and checks that all bring the same.
func (g *Group) compare(ctx context.Context, c *collective, key string) error {
	mine := formOf(&c.view)
	all, err := g.gather(ctx, c.op, key, mine.append(append(binary.AppendUvarint(nil, uint64(c.root)), byte(c.merge))))
	if err != nil {
		return err
	}
	for i, b := range all {
		d := decode(b)
		root, merge, theirs := d.uvarint(), Merge(d.u8()), d.form()
		if err := d.end(); err != nil {
			return err
		}
		e := &MismatchError{Op: g.op(c.op), Peer: g.member(i)}
		switch {
		case root != uint64(c.root):
			e.What, e.Mine, e.Theirs, e.same = "root", fmt.Sprint("member ", c.root), fmt.Sprint("member ", root), "root"
		case merge != c.merge:
			e.What, e.Mine, e.Theirs, e.same = "merge", c.merge.String(), merge.String(), "merge"
		case theirs.dtype != mine.dtype || theirs.elements() != mine.elements():
			e.What, e.Mine, e.Theirs = "view", mine.String(), theirs.String()
		default:
			continue
		}
		return e
	}
	return nil
}

// member names a member.
func (g *Group) member(i int) string {
	p := g.p
	p.mu.Lock()
	defer p.unlock()
	return p.remotes[g.ranks[i]].Name
}

// move runs the plan of an operation once.
func (g *Group) move(ctx context.Context, c *collective, key string) error {
	sends, recvs := c.moves(g)
	if len(sends)+len(recvs) == 0 || c.view.Len() == 0 {
		return nil
	}
	d := &draft{plan: &Plan{p: g.p, name: key}, group: g}
	pl, err := negotiate(ctx, d, sends, recvs)
	if err != nil {
		return g.blame(err)
	}
	h, err := pl.Begin(1)
	if err == nil {
		err = h.Wait(ctx)
	}
	if err != nil {
		err = g.blame(err)
	}
	return cmp.Or(err, g.leave(ctx, pl))
}

// closeTime is how long an operation waits until others have left its memory before it looks whether all of them live.
const closeTime = 200 * time.Millisecond

// leave closes the plan of an operation. A member that was lost may have stopped, and not died: nobody waits for it.
// The memory is given back when it has died, or continues and learns of it.
func (g *Group) leave(ctx context.Context, pl *Plan) error {
	for {
		short, cancel := context.WithTimeout(ctx, closeTime)
		err := pl.Close(short)
		cancel()
		if err == nil {
			return nil
		}
		lost := g.blame(nil) != nil
		if !lost && ctx.Err() == nil {
			continue
		}
		go func() {
			defer g.p.opt.Recover()
			_ = pl.Close(context.Background())
		}()
		if lost {
			return nil // the run has told of it, or had ended before
		}
		return err
	}
}

// moves are what this member sends and receives. The IDs are the indices of the members.
func (c *collective) moves(g *Group) (sends, recvs []Move) {
	root := g.ranks[c.root]
	reduces := c.merge != Overwrite
	if g.index != c.root {
		m := Move{ID: uint64(g.index), Peer: root, View: c.view}
		if reduces {
			return []Move{m}, nil
		}
		return nil, []Move{m}
	}
	for i, rank := range g.ranks {
		m := Move{ID: uint64(i), Peer: rank, View: c.view}
		if reduces {
			recvs = append(recvs, Move{ID: m.ID, Peer: rank, View: c.into, Merge: c.merge})
		}
		if reduces == (i == c.root) {
			sends = append(sends, m)
		}
	}
	return sends, recvs
}

// blame returns the loss of a member in place of an error that may follow from it.
func (g *Group) blame(err error) error {
	p := g.p
	p.mu.Lock()
	defer p.unlock()
	if lost := p.letters.checkLiving("group "+g.name, g.ranks); lost != nil {
		return lost
	}
	return err
}
