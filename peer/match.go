package peer

import (
	"context"
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/text"
	"github.com/stepvan/stepvan/layout"
	"github.com/stepvan/stepvan/match"
	"github.com/stepvan/stepvan/tensor"
)

// Named is a tensor with a name, or the part of it that a peer has.
type Named struct {
	Name string
	// Part is what the peer has of the tensor. The zero value stands for all of it.
	Part layout.Part
	View tensor.Strided // of the shape of the part
}

// Match makes a plan that moves tensors to the tensors of their names, whatever part each member has. All members call
// it with the same name of the plan. Each lists the tensors that it sends, and those that it receives. A member may do
// both, or neither. Package match has the rules. A tensor that nobody receives stays where it is.
//
// It returns the errors of [Peer.Plan]. Tensors that do not fit each other are [stepvan.ErrInvalid] at the members that
// see it, and [stepvan.ErrRemote] at the others. As after any error, the group is over then.
func (g *Group) Match(ctx context.Context, name string, sends, recvs []Named) (*Plan, error) {
	return g.MatchWith(ctx, name, sends, recvs, PlanOptions{})
}

// MatchWith is Match with options, the same at all members.
func (g *Group) MatchWith(ctx context.Context, name string, sends, recvs []Named, o PlanOptions) (*Plan, error) {
	described, err := g.describe(name, sends, recvs)
	if err != nil {
		return nil, g.end(err)
	}
	all, err := g.AllGather(ctx, described)
	if err != nil {
		return nil, err
	}
	moves, err := match.Find(g.ranks, all, g.index)
	if err == nil {
		err = g.agree(ctx, name, nil)
	} else {
		_ = g.agree(ctx, name, err) // the cause is what this member has found
	}
	if err != nil {
		return nil, g.end(fmt.Errorf("plan %s: %w", name, err))
	}
	out, err := narrow(sends, moves.Sends)
	if err != nil {
		return nil, g.end(err)
	}
	in, err := narrow(recvs, moves.Receives)
	if err != nil {
		return nil, g.end(err)
	}
	pl, err := planFor(ctx, g.p, g, name, out, in, o)
	if err != nil {
		return nil, g.end(err)
	}
	return pl, nil
}

// describe is what this member tells the others of its tensors.
func (g *Group) describe(plan string, sends, recvs []Named) ([]byte, error) {
	var s match.State
	for _, side := range []struct {
		from []Named
		to   *[]match.Tensor
	}{{sends, &s.Sends}, {recvs, &s.Receives}} {
		*side.to = make([]match.Tensor, len(side.from))
		for i := range side.from {
			t, err := side.from[i].describe()
			if err != nil {
				return nil, fmt.Errorf("plan %s: %w", plan, err)
			}
			(*side.to)[i] = t
		}
	}
	b, err := s.Append(nil)
	if err != nil {
		return nil, fmt.Errorf("plan %s: %w", plan, err)
	}
	return b, nil
}

func (n *Named) describe() (t match.Tensor, err error) {
	t = match.Tensor{Name: n.Name, DType: n.View.DType(), Part: n.Part}
	shape := n.View.Shape()
	if empty := (layout.Part{}); t.Part.Equal(&empty) {
		t.Part, err = layout.Whole(shape)
		return t, err
	}
	if want := t.Part.Local(); want != shape {
		return t, errs.Invalid("%s: the view does not have the shape of its part (got %s, want %s): give both of one tensor", text.Cut(n.Name), shape, want)
	}
	return t, nil
}

// agree tells the members whether this one has found its moves, and returns why another one has not.
func (g *Group) agree(ctx context.Context, plan string, why error) error {
	var mine []byte
	if why != nil {
		mine = []byte(text.Line(why.Error(), maxText))
	}
	all, err := g.AllGather(ctx, mine)
	if err != nil {
		return err
	}
	for i, b := range all {
		if len(b) > 0 && i != g.index {
			name := fmt.Sprintf("peer %d", g.ranks[i])
			return &stepvan.OpError{Op: "plan " + plan, Peer: name, Err: fmt.Errorf("%w: %s", stepvan.ErrRemote, text.Line(string(b), maxText))}
		}
	}
	return nil
}

// narrow turns the moves of a match into those of a plan.
func narrow(tensors []Named, moves []match.Move) ([]Move, error) {
	out := make([]Move, len(moves))
	for i := range moves {
		m := &moves[i]
		t := &tensors[m.Tensor]
		view, err := m.Narrow(t.View)
		if err != nil {
			return nil, fmt.Errorf("plan: %s: %w", text.Cut(t.Name), err)
		}
		out[i] = Move{ID: m.ID, Peer: m.Peer, View: view, Label: t.Name}
	}
	return out, nil
}
