package bus

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/layout"
)

// roster lists the ranks of a pair. All agents make the same of the entries on the board. It does not change.
type roster struct {
	pair  string
	id    uint64  // of this list, with the attempts of all ranks
	sides [2]side // by name
	all   []member
	// mixed says that an agent has ranks of both sides, so that a run of one direction waits for ranks of both there.
	mixed bool
}

// side is one of the two layouts of a pair.
type side struct {
	name   string
	layout *layout.Layout // nil: rank i has the same tensors as rank i of the other side
	first  int            // index of its first rank in roster.all
	size   int
}

// member is a rank of a side.
type member struct {
	agent  stepvan.Rank
	client uint64
	rank   int // that its client has named, or -1
	side   int
	index  int // in its side
}

// leader is the agent that compares what the ranks register.
func (r *roster) leader() stepvan.Rank { return r.all[0].agent }

func (r *roster) has(agent stepvan.Rank) bool {
	return slices.ContainsFunc(r.all, func(m member) bool { return m.agent == agent })
}

// agents lists the agents of all ranks.
func (r *roster) agents() (list []stepvan.Rank) {
	for _, m := range r.all {
		list = append(list, m.agent)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// agentsOf lists the agents of the ranks of a side.
func (r *roster) agentsOf(side int) (list []stepvan.Rank) {
	for _, m := range r.all[r.sides[side].first:][:r.sides[side].size] {
		list = append(list, m.agent)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// name names a rank for people.
func (r *roster) name(i int) string {
	m := &r.all[i]
	return fmt.Sprintf("%s rank %d (peer %d)", r.sides[m.side].name, m.index, m.agent)
}

// names lists some ranks for people.
func (r *roster) names(list []int) string {
	const most = 8
	var names []string
	for _, i := range list[:min(len(list), most)] {
		names = append(names, r.name(i))
	}
	if len(list) > most {
		names = append(names, fmt.Sprintf("and %d more", len(list)-most))
	}
	return strings.Join(names, ", ")
}

// targetable reports whether a side may receive: no values there wait for a reduction.
func (s *side) targetable() bool { return s.layout == nil || s.layout.CheckTarget() == nil }

// makeRoster makes the roster of the ranks of a pair, once all are there. It returns nil before that. Its error says in
// what they do not agree. mine is one of them.
func makeRoster(mine *rankEntry, all []rankEntry) (*roster, error) {
	slices.SortFunc(all, func(a, b rankEntry) int {
		return cmp.Or(strings.Compare(a.side, b.side), cmp.Compare(a.rank, b.rank), cmp.Compare(a.agent, b.agent), cmp.Compare(a.client, b.client))
	})
	sides := [2]string{min(mine.side, mine.remote), max(mine.side, mine.remote)}
	var lists [2][]rankEntry
	for _, n := range all {
		i := slices.Index(sides[:], n.side)
		if i < 0 || n.remote != sides[1-i] {
			return nil, errs.Invalid("InitPair: pair %q: the ranks do not name each other (%s names %q as its partner, %s names %q): give both sides of a pair each other's name",
				mine.pair, mine, mine.remote, &n, n.remote)
		}
		lists[i] = append(lists[i], n)
	}
	for _, list := range lists {
		if err := checkSide(mine.pair, list); err != nil {
			return nil, err
		}
	}
	if len(lists[0]) == 0 || len(lists[1]) == 0 {
		return nil, nil
	}
	if err := checkSides(mine.pair, &lists[0][0], &lists[1][0]); err != nil {
		return nil, err
	}
	r := &roster{pair: mine.pair}
	complete := true
	for i, list := range lists {
		complete = complete && isComplete(list)
		r.add(i, list)
	}
	if !complete {
		return nil, nil
	}
	return r, nil
}

// add adds the ranks of a side.
func (r *roster) add(i int, list []rankEntry) {
	r.sides[i] = side{name: list[0].side, layout: list[0].layout, first: len(r.all), size: len(list)}
	h := xxhash.New()
	_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, r.id))
	for k, n := range list {
		r.mixed = r.mixed || i == 1 && r.has(n.agent)
		_, _ = h.WriteString(n.key())
		_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, n.attempt))
		r.all = append(r.all, member{n.agent, n.client, n.rank, i, k})
	}
	for _, m := range r.all[:r.sides[i].first] {
		r.mixed = r.mixed || slices.ContainsFunc(list, func(n rankEntry) bool { return n.agent == m.agent })
	}
	r.id = h.Sum64()
}

// isComplete reports whether all ranks of a side are there, and none is a mark that others have failed.
func isComplete(list []rankEntry) bool {
	return len(list) == list[0].size && !slices.ContainsFunc(list, func(n rankEntry) bool { return n.state != entryStands })
}

// checkSide refuses ranks of one side that differ.
func checkSide(pair string, list []rankEntry) error {
	for i := 1; i < len(list); i++ {
		a, b := &list[0], &list[i]
		switch {
		case a.size != b.size:
			return errs.Invalid("InitPair: pair %q: the ranks differ in expected_world_size (%s says %d, %s says %d): give all the number of local ranks",
				pair, a, a.size, b, b.size)
		case !slices.Equal(a.mesh, b.mesh) || !slices.Equal(a.placements, b.placements):
			return errs.Invalid("InitPair: pair %q: the ranks differ in layout (%s has %s, %s has %s): give all ranks of a side one layout",
				pair, a, a.layoutName(), b, b.layoutName())
		case (a.rank < 0) != (b.rank < 0) || list[i-1].rank == b.rank && b.rank >= 0:
			return errs.Invalid("InitPair: pair %q: %s and %s do not have ranks of their own (got %d and %d): name the rank of each client",
				pair, &list[i-1], b, list[i-1].rank, b.rank)
		case b.rank < 0 && list[i-1].agent == b.agent:
			return errs.Invalid("InitPair: pair %q: peer %d has several clients of %s, and which is first is not known: name the rank of each client",
				pair, b.agent, b.side)
		}
	}
	if len(list) > 0 && len(list) > list[0].size {
		return errs.Invalid("InitPair: pair %q: %s has too many ranks (got %d, of which %s is the last, want %d): give expected_world_size the number of local ranks",
			pair, list[0].side, len(list), &list[len(list)-1], list[0].size)
	}
	return nil
}

// checkSides refuses two sides that do not fit.
func checkSides(pair string, a, b *rankEntry) error {
	switch {
	case (a.layout == nil) != (b.layout == nil):
		return errs.Invalid("InitPair: pair %q: one side has a layout and the other none (%s has %s, %s has %s): give both, or none",
			pair, a, a.layoutName(), b, b.layoutName())
	case a.layout == nil && a.size != b.size:
		return errs.Invalid("InitPair: pair %q: without layouts both sides need as many ranks (%s says %d, %s says %d): give layouts",
			pair, a, a.size, b, b.size)
	case a.layout != nil && a.layout.CheckTarget() != nil && b.layout.CheckTarget() != nil:
		return errs.Invalid("InitPair: pair %q: both sides are partial, so neither can receive (%s has %s, %s has %s): reduce one of them",
			pair, a, a.layoutName(), b, b.layoutName())
	}
	return nil
}
