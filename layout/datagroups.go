package layout

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
)

// Member is a rank that has a part of a parameter of Megatron-core, and its parallel groups. Each group names its ranks
// in the group's order. A group that is nil stands for the rank alone.
type Member struct {
	Rank   stepvan.Rank
	Tensor []stepvan.Rank // tensor_parallel_group_ranks
	Data   []stepvan.Rank // data_parallel_group_ranks
	Expert []stepvan.Rank // expert_parallel_group_ranks; nil for a parameter that is not an expert's
}

// Check refuses a member that one of its groups does not have, or a group that names a rank twice. The errors are
// [stepvan.ErrInvalid].
func (m *Member) Check() error {
	if err := checkRank("the members", m.Rank); err != nil {
		return err
	}
	for _, g := range []struct {
		name  string
		ranks []stepvan.Rank
	}{{"tensor", m.Tensor}, {"data", m.Data}, {"expert", m.Expert}} {
		if g.ranks == nil {
			continue
		}
		if !slices.Contains(g.ranks, m.Rank) {
			return errs.Invalid("layout: rank %d is not in its own %s parallel group %v", m.Rank, g.name, g.ranks)
		}
		if err := distinct(fmt.Sprintf("the %s parallel group of rank %d", g.name, m.Rank), g.ranks); err != nil {
			return err
		}
	}
	return nil
}

// DataGroups is the rule by which resharding chooses sources: a destination reads from one copy of the parameter, and
// the destinations take the copies in turns. It does not change, and any goroutine may read it. It depends on the
// groups alone, so parameters that the same ranks have share it.
type DataGroups struct {
	members []Member
	index   map[stepvan.Rank]int
	all     copies // of every expert
	expert  map[int]*copies
	experts int // size of the expert parallel groups, 0 without
}

// copies are members by data parallel group. The groups are sorted, and their members are in the order in which they
// were given.
type copies struct {
	groups  [][]stepvan.Rank
	members [][]int32
}

// NewDataGroups takes every member that has the parameter. Pass them in ascending order of ranks, as resharding gathers
// them, so that all ranks make the same choice. The result keeps the slice and the groups. The caller must not write to
// them.
func NewDataGroups(members []Member) (*DataGroups, error) {
	if len(members) == 0 {
		return nil, errs.Invalid("layout: a source is missing: no rank has the parameter")
	}
	if len(members) > maxMesh {
		return nil, errs.Invalid("layout: too many ranks have the parameter (got %d, want at most %d)", len(members), maxMesh)
	}
	g := &DataGroups{members: members, index: make(map[stepvan.Rank]int, len(members)), expert: map[int]*copies{}}
	g.experts = len(members[0].Expert)
	for i := range members {
		m := &members[i]
		if err := m.Check(); err != nil {
			return nil, err
		}
		if _, twice := g.index[m.Rank]; twice {
			return nil, errs.Invalid("layout: rank %d has the parameter twice: give its own name to each tensor", m.Rank)
		}
		if len(m.Expert) != g.experts {
			return nil, errs.Invalid("layout: expert parallel groups of the sources differ in size (got %d at rank %d, %d at rank %d)",
				len(m.Expert), m.Rank, g.experts, members[0].Rank)
		}
		g.index[m.Rank] = i
		g.all.add(m, i)
		if g.experts > 0 {
			e := slices.Index(m.Expert, m.Rank)
			if g.expert[e] == nil {
				g.expert[e] = new(copies)
			}
			g.expert[e].add(m, i)
		}
	}
	return g, nil
}

// add puts a member into its data parallel group.
func (c *copies) add(m *Member, number int) {
	data := m.Data
	if data == nil {
		data = []stepvan.Rank{m.Rank}
	}
	i, found := slices.BinarySearchFunc(c.groups, data, slices.Compare)
	if !found {
		c.groups, c.members = slices.Insert(c.groups, i, data), slices.Insert(c.members, i, nil)
	}
	c.members[i] = append(c.members[i], int32(number))
}

// Sources says which ranks the destination dst reads from. partition is the source's. The rule:
//
//   - Where both sides have expert parallel groups of the same size, only sources with the destination's place in
//     its group count.
//   - A destination that is a source itself reads from its own copy.
//   - Otherwise there are n data parallel groups. Destination d takes group d mod n, and in it member (d div n) mod its
//     size.
//
// The tensor parallel group of the chosen member has the parts. A parameter that every rank has whole is read from the
// chosen member alone. Of a fused tensor of experts the rule chooses a member for each place in the group.
func (g *DataGroups) Sources(dst *Member, partition *Partition) (Sources, error) {
	if err := checkRank("the destinations", dst.Rank); err != nil {
		return Sources{}, err
	}
	if partition.ExpertWorld > 1 {
		return g.fused(dst, partition)
	}
	expert := -1
	if dst.Expert != nil && len(dst.Expert) == g.experts {
		if expert = slices.Index(dst.Expert, dst.Rank); expert < 0 {
			return Sources{}, errs.Invalid("layout: rank %d is not in its own expert parallel group %v", dst.Rank, dst.Expert)
		}
	}
	chosen, err := g.choose(dst.Rank, expert)
	if err != nil {
		return Sources{}, err
	}
	if partition.World <= 1 {
		return Sources{Ranks: []stepvan.Rank{chosen.Rank}}, nil
	}
	return Sources{Ranks: chosen.Tensor}, g.checkTensor(chosen, partition.World)
}

// fused puts the tensor parallel groups of all places of the expert parallel group one behind the other.
func (g *DataGroups) fused(dst *Member, partition *Partition) (Sources, error) {
	if g.experts != partition.ExpertWorld {
		return Sources{}, errs.Invalid("layout: partition and expert parallel groups of the sources differ in size (got %d, want %d)",
			partition.ExpertWorld, g.experts)
	}
	var all []stepvan.Rank
	for e := range g.experts {
		chosen, err := g.choose(dst.Rank, e)
		if err != nil {
			return Sources{}, err
		}
		if partition.World <= 1 {
			all = append(all, chosen.Rank)
			continue
		}
		if err := g.checkTensor(chosen, partition.World); err != nil {
			return Sources{}, err
		}
		all = append(all, chosen.Tensor...)
	}
	return Sources{Ranks: all}, nil
}

// checkTensor refuses a tensor parallel group of another size than the partition's, or with a rank that does not have
// the parameter.
func (g *DataGroups) checkTensor(m *Member, world int) error {
	if len(m.Tensor) != world {
		return errs.Invalid("layout: partition and tensor parallel group of rank %d differ in size (got %d, want %d)",
			m.Rank, world, len(m.Tensor))
	}
	for _, r := range m.Tensor {
		if _, ok := g.index[r]; !ok {
			return errs.Invalid("layout: a source is missing: rank %d of tensor parallel group %v does not have the parameter",
				r, m.Tensor)
		}
	}
	return nil
}

// choose picks a member with this place in its expert parallel group, or any member for a negative place.
func (g *DataGroups) choose(dst stepvan.Rank, expert int) (*Member, error) {
	from := &g.all
	if expert >= 0 {
		if from = g.expert[expert]; from == nil {
			return nil, g.noExpert(dst, expert)
		}
	}
	if i, ok := g.index[dst]; ok && (expert < 0 || slices.Index(g.members[i].Expert, dst) == expert) {
		return &g.members[i], nil
	}
	n := len(from.groups)
	group := from.members[int(dst)%n]
	return &g.members[group[int(dst)/n%len(group)]], nil
}

// noExpert lists the places that the sources do have.
func (g *DataGroups) noExpert(dst stepvan.Rank, expert int) error {
	const most = 16
	var available []string
	for i := range g.members {
		m := &g.members[i]
		if i == most {
			available = append(available, fmt.Sprintf("and %d more", len(g.members)-most))
			break
		}
		available = append(available, fmt.Sprintf("%d at rank %d", slices.Index(m.Expert, m.Rank), m.Rank))
	}
	return errs.Invalid("layout: a source is missing: no rank has place %d of its expert parallel group, for rank %d (got %s)",
		expert, dst, strings.Join(available, ", "))
}
