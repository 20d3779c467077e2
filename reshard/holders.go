package reshard

import (
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/layout"
)

// holders says which ranks have each parameter. Parameters that the same ranks have in the same forms share an origin.
type holders struct {
	origins []*origin
	of      []int32 // the origin of each name; -1: no rank has it
}

// holder is a member that has a parameter.
type holder struct{ member, form int32 }

// origin is all ranks that have some parameters.
type origin struct {
	ranks []stepvan.Rank // ascending
	forms []*Form        // of each rank
	index map[stepvan.Rank]int

	groups *layout.DataGroups // made when it is needed first
	parts  *layout.Holders
}

// collect sorts the sources of all members by name.
func (h *holders) collect(p *Planner) {
	first := make([]int32, len(p.names)+1)
	for m := range p.members {
		for _, id := range p.ids[m][0] {
			first[id+1]++
		}
	}
	for id := range p.names {
		first[id+1] += first[id]
	}
	all := make([]holder, first[len(p.names)])
	next := append([]int32(nil), first...)
	for m, c := range p.members {
		for i, id := range p.ids[m][0] {
			all[next[id]] = holder{int32(m), c.sides[0].forms[i]}
			next[id]++
		}
	}
	known := map[string]int32{}
	h.of = make([]int32, len(p.names))
	var key []byte
	for id := range h.of {
		key = key[:0]
		set := all[first[id]:first[id+1]]
		for _, x := range set {
			key = append(key, byte(x.member), byte(x.member>>8), byte(x.member>>16), byte(x.member>>24),
				byte(x.form), byte(x.form>>8), byte(x.form>>16), byte(x.form>>24))
		}
		o, ok := known[string(key)]
		if !ok {
			o = -1
			if len(set) > 0 {
				o = int32(len(h.origins))
				h.origins = append(h.origins, newOrigin(p, set))
			}
			known[string(key)] = o
		}
		h.of[id] = o
	}
}

func newOrigin(p *Planner, set []holder) *origin {
	o := &origin{index: make(map[stepvan.Rank]int, len(set))}
	for i, x := range set {
		c := p.members[x.member]
		o.ranks = append(o.ranks, c.rank)
		o.forms = append(o.forms, c.forms[x.form])
		o.index[c.rank] = i
	}
	return o
}

// form is what a rank has, or nil.
func (o *origin) form(r stepvan.Rank) *Form {
	if i, ok := o.index[r]; ok {
		return o.forms[i]
	}
	return nil
}

// parallel reports whether all sources have the attributes of Megatron-core.
func (o *origin) parallel() bool {
	for _, f := range o.forms {
		if f.Parallel == nil {
			return false
		}
	}
	return true
}

// dataGroups is the rule for sources with the attributes of Megatron-core.
func (o *origin) dataGroups() (*layout.DataGroups, error) {
	if o.groups != nil {
		return o.groups, nil
	}
	members := make([]layout.Member, len(o.ranks))
	for i, r := range o.ranks {
		members[i] = o.forms[i].Parallel.member(r)
	}
	var err error
	o.groups, err = layout.NewDataGroups(members)
	return o.groups, err
}

// byPart is the rule for sources without the attributes of Megatron-core. A source with attributes counts with the part
// that they give it.
func (o *origin) byPart() (*layout.Holders, error) {
	if o.parts != nil {
		return o.parts, nil
	}
	all := make([]layout.Holder, len(o.ranks))
	for i, r := range o.ranks {
		part, err := o.part(r, o.forms[i])
		if err != nil {
			return nil, fmt.Errorf("%w, of source rank %d", err, r)
		}
		all[i] = layout.Holder{Rank: r, Part: part}
	}
	var err error
	o.parts, err = layout.NewHolders(all)
	return o.parts, err
}

func (o *origin) part(r stepvan.Rank, f *Form) (*layout.Part, error) {
	if f.Part != nil {
		return f.Part, nil
	}
	if f.Parallel == nil {
		part, err := layout.Whole(f.Shape)
		return &part, err
	}
	s, err := o.source(r, f.Parallel.partition())
	if err != nil {
		return nil, err
	}
	if f.Parallel.fused() > 1 {
		return nil, errs.Invalid("reshard: a fused tensor of experts goes to a destination without groups: give the destination's parameters the attributes of Megatron-core")
	}
	part, err := s.partition.Part(s.whole, f.Parallel.place(r))
	return &part, err
}
