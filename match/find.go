package match

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/text"
	"github.com/stepvan/stepvan/layout"
	"github.com/stepvan/stepvan/tensor"
)

// Move is one end of a move: elements of a tensor of this peer.
type Move struct {
	ID     uint64       // the same at both ends
	Peer   stepvan.Rank // the other end, which may be this peer
	Tensor int          // of the list that this peer has described
	Offset [tensor.MaxRank]int64
	Extent [tensor.MaxRank]int64
}

// Narrow is the part of a view that moves. The view is what the peer has of the tensor.
func (m *Move) Narrow(v tensor.Strided) (tensor.Strided, error) {
	var err error
	for d := range len(v.Dims()) {
		if v, err = v.Narrow(d, m.Offset[d], m.Extent[d]); err != nil {
			return v, err
		}
	}
	return v, nil
}

// Moves are the moves of one peer.
type Moves struct {
	Sends, Receives []Move
}

// Find finds the moves of a peer. ranks are the peers, described says what each of them has ([State.Append]), and own
// is the place of this peer among them. All peers pass the same lists, in the same order.
//
// A peer finds what is wrong with tensors that it sends or receives. The others may not notice, so tell them.
func Find(ranks []stepvan.Rank, described [][]byte, own int) (Moves, error) {
	f := finder{ranks: ranks, own: own, names: map[string]int{}, codes: map[string]int32{}, known: map[string]*pattern{}}
	if len(ranks) != len(described) || own < 0 || own >= len(ranks) {
		return Moves{}, errs.Invalid("match: %d descriptions of %d peers, of which this is number %d", len(described), len(ranks), own)
	}
	for i, b := range described {
		s, err := read(b)
		if err == nil {
			err = f.add(i, &s)
		}
		if err != nil {
			return Moves{}, fmt.Errorf("match: peer %d: %w", ranks[i], err)
		}
	}
	for i := range f.all {
		if err := f.moves(i); err != nil {
			return Moves{}, err
		}
	}
	return f.found, nil
}

// end is a peer that sends or receives a tensor. There are many.
type end struct {
	member int32 // in ranks
	tensor int32 // in its list
	part   int32 // of finder.parts
}

// parameter is a tensor of one name.
type parameter struct {
	name  string
	dtype tensor.DType
	ends  [2][]end
}

// finder has what all peers have described.
type finder struct {
	ranks []stepvan.Rank
	own   int
	all   []parameter
	names map[string]int // of all
	parts []*layout.Part
	codes map[string]int32 // the number in parts of each encoding
	known map[string]*pattern
	key   []byte
	work  layout.Moves
	found Moves
}

// add takes what a member has described.
func (f *finder) add(member int, s *state) error {
	parts := make([]int32, len(s.codes))
	for i, code := range s.codes {
		number, ok := f.codes[code]
		if !ok {
			number = int32(len(f.parts))
			f.codes[code] = number
			f.parts = append(f.parts, &s.parts[i])
		}
		parts[i] = number
	}
	for side, list := range s.lists {
		for i := range list {
			d := &list[i]
			p := f.parameter(d)
			e := end{member: int32(member), tensor: int32(i), part: parts[d.part]}
			if err := f.fits(p, d, f.parts[e.part]); err != nil {
				return err
			}
			if n := len(p.ends[side]); n > 0 && p.ends[side][n-1].member == e.member {
				return errs.Invalid("%s is named twice among what it %s: name each tensor once", text.Cut(p.name), verbs[side])
			}
			p.ends[side] = append(p.ends[side], e)
		}
	}
	return nil
}

var verbs = [...]string{sending: "sends", receiving: "receives"}

// parameter returns the tensor of a name. The result is valid until the next call.
func (f *finder) parameter(d *described) *parameter {
	i, ok := f.names[string(d.name)]
	if !ok {
		i = len(f.all)
		name := string(d.name)
		f.names[name] = i
		f.all = append(f.all, parameter{name: name, dtype: d.dtype})
	}
	return &f.all[i]
}

// fits compares a tensor with what another peer has of that name.
func (f *finder) fits(p *parameter, d *described, part *layout.Part) error {
	var other *end
	for side := range p.ends {
		if len(p.ends[side]) > 0 && other == nil {
			other = &p.ends[side][0]
		}
	}
	if other == nil {
		return nil
	}
	have := f.parts[other.part].Shape()
	if p.dtype == d.dtype && have == part.Shape() {
		return nil
	}
	return errs.Invalid("%s differs in type or shape (got %s%s, want %s%s as peer %d has it): give both sides the same type and whole shape",
		text.Cut(p.name), d.dtype, part.Shape(), p.dtype, have, f.ranks[other.member])
}

// pattern has the moves of this peer for all tensors that lie alike.
type pattern struct {
	receives, sends []found
	err             error
}

// found is a move of a pattern.
type found struct {
	number int // among the moves of its receiver
	peer   stepvan.Rank
	offset [tensor.MaxRank]int64
	extent [tensor.MaxRank]int64
}

// moves appends the moves of a parameter.
func (f *finder) moves(number int) error {
	p := &f.all[number]
	mine := [2]int{f.mine(p.ends[sending]), f.mine(p.ends[receiving])}
	if len(p.ends[receiving]) == 0 || mine[sending] < 0 && mine[receiving] < 0 {
		return nil
	}
	if len(p.ends[sending]) == 0 {
		return errs.Invalid("match: %s: %s receives it, and nobody sends it: %s", text.Cut(p.name), f.members(p.ends[receiving]), f.advice(p.name))
	}
	x := f.pattern(p)
	if x.err != nil {
		return fmt.Errorf("match: %s: %s to %s: %w", text.Cut(p.name), f.members(p.ends[sending]), f.members(p.ends[receiving]), x.err)
	}
	for side, list := range [][]found{sending: x.sends, receiving: x.receives} {
		if mine[side] < 0 {
			continue
		}
		to := &f.found.Sends
		if side == receiving {
			to = &f.found.Receives
		}
		for i := range list {
			m := &list[i]
			*to = append(*to, Move{
				ID: uint64(number)<<32 | uint64(m.number), Peer: m.peer, Tensor: mine[side], Offset: m.offset, Extent: m.extent,
			})
		}
	}
	return nil
}

// mine is the number of this peer's tensor among some ends, or -1.
func (f *finder) mine(ends []end) int {
	if i, ok := slices.BinarySearchFunc(ends, int32(f.own), func(e end, own int32) int { return int(e.member - own) }); ok {
		return int(ends[i].tensor)
	}
	return -1
}

// members names the peers of some ends.
func (f *finder) members(ends []end) string {
	const most = 8
	var list []string
	for i := range ends {
		if i == most {
			list = append(list, fmt.Sprintf("%d more", len(ends)-most))
			break
		}
		list = append(list, fmt.Sprint(f.ranks[ends[i].member]))
	}
	return "peer " + strings.Join(list, ", ")
}

// advice says what to do about a name that nobody sends.
func (f *finder) advice(name string) string {
	for i := range f.all {
		p := &f.all[i]
		if len(p.ends[sending]) > 0 && (strings.HasSuffix(p.name, "."+name) || strings.HasSuffix(name, "."+p.name)) {
			return fmt.Sprintf("give both sides one name (peer %d sends %s)", f.ranks[p.ends[sending][0].member], text.Cut(p.name))
		}
	}
	return "send it too, or leave it out"
}

// pattern finds the moves of tensors that lie as p does, or returns what was found for an earlier one.
func (f *finder) pattern(p *parameter) *pattern {
	f.key = f.key[:0]
	for _, ends := range p.ends {
		f.key = binary.AppendUvarint(f.key, uint64(len(ends)))
		for i := range ends {
			f.key = binary.AppendUvarint(f.key, uint64(ends[i].member))
			f.key = binary.AppendUvarint(f.key, uint64(ends[i].part))
		}
	}
	x := f.known[string(f.key)]
	if x == nil {
		x = f.search(p)
		f.known[string(f.key)] = x
	}
	return x
}

// search finds the moves of this peer.
func (f *finder) search(p *parameter) *pattern {
	x := new(pattern)
	var all []layout.Holder
	sends := false
	for _, e := range p.ends[sending] {
		all = append(all, layout.Holder{Rank: f.ranks[e.member], Part: f.parts[e.part]})
		sends = sends || int(e.member) == f.own
	}
	holders, err := layout.NewHolders(all)
	if err != nil {
		return &pattern{err: err}
	}
	for target, e := range p.ends[receiving] {
		member := int(e.member)
		if !sends && member != f.own {
			continue
		}
		f.work.Reset()
		if err := holders.Assign(f.parts[e.part], f.ranks[member], target, &f.work); err != nil {
			return &pattern{err: err}
		}
		for i := range f.work.Len() {
			v := f.work.At(i)
			if member == f.own {
				x.receives = append(x.receives, found{i, v.Source, v.Dst, v.Extent})
			}
			if v.Source == f.ranks[f.own] {
				x.sends = append(x.sends, found{i, f.ranks[member], v.Src, v.Extent})
			}
		}
	}
	return x
}
