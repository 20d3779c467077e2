package reshard

import (
	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/layout"
)

// ChooseSource is the rule for sources alone. Of the ranks whose rosters have a source it returns the one whose copy
// the destination reads from. destination is a roster with one destination and no source. Every roster has one
// parameter, with the attributes of Megatron-core. The shapes do not count.
func ChooseSource(sources [][]byte, destination []byte) (stepvan.Rank, error) {
	reading := newReading()
	want, err := reading.roster(destination)
	if err != nil {
		return 0, err
	}
	one := func(c *contents, side int) (*Form, error) {
		s := &c.sides[side]
		if len(s.forms) != 1 || c.forms[s.forms[0]].Parallel == nil {
			return nil, errs.Invalid("reshard: a source is chosen for one parameter with attributes (got %d parameters of rank %d): give each roster one",
				len(s.forms), c.rank)
		}
		return c.forms[s.forms[0]], nil
	}
	to, err := one(want, 1)
	if err != nil {
		return 0, err
	}
	members := make([]layout.Member, 0, len(sources))
	for _, b := range sources {
		c, err := reading.roster(b)
		if err != nil {
			return 0, err
		}
		f, err := one(c, 0)
		if err != nil {
			return 0, err
		}
		members = append(members, f.Parallel.member(c.rank))
	}
	groups, err := layout.NewDataGroups(members)
	if err != nil {
		return 0, err
	}
	member := to.Parallel.member(want.rank)
	chosen, err := groups.Sources(&member, &layout.Partition{})
	if err != nil {
		return 0, err
	}
	return chosen.Ranks[0], nil
}
