package reshard

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/layout"
)

// Options say how parameters are planned. All ranks must use the same.
type Options struct {
	// World is how many ranks there are. A rank of a group beyond them is refused. 0: not known.
	World int
	// BatchBytes bounds how many bytes a rank sends, and how many it receives, in one batch. A parameter is never
	// divided between batches, so a batch may have one that is larger. 0: all is one batch.
	BatchBytes int64
	// Cast allows every parameter to have another type at its destination. Persistent buffers may always.
	Cast bool
}

// Planner knows how every destination gets all its parameters. It does not change, and any goroutine may use it.
type Planner struct {
	options   Options
	members   []*contents  // by rank, ascending
	ids       [][2][]int32 // the numbers of the resolved names of both sides, by member
	names     []string     // resolved names, by number
	numbers   map[string]int32
	holders   holders
	routes    []*route
	chosen    [][]int32 // the route of each destination's parameters, by member
	batch     []int32   // of each name; nil: all are in batch 0
	batches   int
	embedding int32 // the name that a tied output takes; -1: none

	pairs map[string]*layout.Planner
	key   []byte       // working memory of pair
	moves layout.Moves // working memory of route
}

// NewPlanner plans for all ranks, from what [Roster.Append] has written at each of them. The order of the rosters has
// no meaning. Ranks that have the same rosters and options make the same plans. Where one rank cannot get what it
// needs, all of them get the same error.
func NewPlanner(rosters [][]byte, o Options) (*Planner, error) {
	p := &Planner{options: o, batches: 1, pairs: map[string]*layout.Planner{}}
	reading := newReading()
	for _, b := range rosters {
		c, err := reading.roster(b)
		if err != nil {
			return nil, err
		}
		p.members = append(p.members, c)
	}
	slices.SortStableFunc(p.members, func(a, b *contents) int { return cmp.Compare(a.rank, b.rank) })
	for i, c := range p.members {
		if i > 0 && c.rank == p.members[i-1].rank {
			return nil, errs.Invalid("reshard: rank %d has sent two rosters: give each rank a number of its own", c.rank)
		}
		if err := p.checkGroups(c); err != nil {
			return nil, err
		}
	}
	if err := p.number(); err != nil {
		return nil, err
	}
	p.holders.collect(p)
	if err := p.choose(); err != nil {
		return nil, err
	}
	if o.BatchBytes > 0 {
		p.fill()
	}
	return p, nil
}

// checkGroups refuses groups that a form of member c cannot have.
func (p *Planner) checkGroups(c *contents) error {
	if p.options.World > 0 && int(c.rank) >= p.options.World {
		return errs.Invalid("reshard: rank is out of range (got %d of %d ranks): check the rank offsets", c.rank, p.options.World)
	}
	for _, f := range c.forms {
		if f.Parallel == nil {
			continue
		}
		m := f.Parallel.member(c.rank)
		if err := m.Check(); err != nil {
			return fmt.Errorf("%w: check the rank offsets and the groups of rank %d", err, c.rank)
		}
		for _, ranks := range [][]stepvan.Rank{m.Tensor, m.Data, m.Expert} {
			if last := slices.Max(append(ranks[:len(ranks):len(ranks)], 0)); p.options.World > 0 && int(last) >= p.options.World {
				return errs.Invalid("reshard: rank %d of group %v of rank %d is out of range (want less than %d): check the rank offsets",
					last, ranks, c.rank, p.options.World)
			}
		}
	}
	return nil
}

// number gives each resolved name a number. Most ranks share their lists of names.
func (p *Planner) number() error {
	p.numbers = map[string]int32{}
	lists := map[*string][]int32{}
	var seen []*string // the last list that has the name
	for _, c := range p.members {
		var sides [2][]int32
		for i := range c.sides {
			names := c.sides[i].resolved
			if len(names) == 0 {
				continue
			}
			list := &names[0]
			if sides[i] = lists[list]; sides[i] != nil {
				continue
			}
			ids := make([]int32, len(names))
			for k, name := range names {
				id, ok := p.numbers[name]
				if !ok {
					id = int32(len(p.names))
					p.numbers[name] = id
					p.names, seen = append(p.names, name), append(seen, nil)
				}
				if seen[id] == list {
					return errs.Invalid("reshard: rank %d has parameter %q twice: give each tensor a name of its own", c.rank, name)
				}
				ids[k], seen[id] = id, list
			}
			lists[list], sides[i] = ids, ids
		}
		p.ids = append(p.ids, sides)
	}
	return nil
}

// choose finds the route of every parameter of every destination.
func (p *Planner) choose() error {
	p.embedding = p.tied()
	for m, c := range p.members {
		s := &c.sides[1]
		chosen := make([]int32, len(s.forms))
		known := map[uint64]int32{}
		for i, id := range p.ids[m][1] {
			from := p.holders.of[id]
			if from < 0 && p.embedding >= 0 && strings.HasSuffix(p.names[id], "output_layer.weight") {
				from = p.holders.of[p.embedding]
			}
			if from < 0 {
				return errs.Invalid("reshard: a source is missing: no rank has parameter %q, which rank %d wants: check the names of both models, and the layers' layer_number",
					p.names[id], c.rank)
			}
			key := uint64(from)<<32 | uint64(s.forms[i])
			number, ok := known[key]
			if !ok {
				r, err := p.route(p.holders.origins[from], c.rank, c.forms[s.forms[i]])
				if err != nil {
					return fmt.Errorf("%w, of parameter %q for rank %d", err, p.names[id], c.rank)
				}
				number = int32(len(p.routes))
				p.routes = append(p.routes, r)
				known[key] = number
			}
			chosen[i] = number
		}
		p.chosen = append(p.chosen, chosen)
	}
	return nil
}

// tied is the number of the embedding's name, or -1. The embedding stands for the matrix of the output where a source
// shares one matrix for both, and a destination has two.
func (p *Planner) tied() int32 {
	for _, name := range []string{"embedding.word_embeddings.weight", "word_embeddings.weight"} {
		if id, ok := p.numbers[name]; ok && p.holders.of[id] >= 0 {
			return id
		}
	}
	return -1
}
