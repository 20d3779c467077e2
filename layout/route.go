package layout

import (
	"cmp"
	"slices"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/tensor"
)

// Receiver is a rank and the moves that it needs.
type Receiver struct {
	Rank  stepvan.Rank
	Moves *Moves
}

// Route is a box of a source and all ranks that need it. With several it is a broadcast. A destination that is the
// source itself copies in its own memory.
type Route struct {
	Source  stepvan.Rank
	Rank    int // the number of dimensions
	Src     [tensor.MaxRank]int64
	Extent  [tensor.MaxRank]int64
	Targets []Landing
}

// Landing is where a box lands.
type Landing struct {
	Rank stepvan.Rank
	Dst  [tensor.MaxRank]int64
}

// Routes groups the moves of one tensor by source and box, ordered by source and then by the place in the source. The
// destinations of each route have the order of the receivers.
func Routes(receivers []Receiver) ([]Route, error) {
	type one struct {
		Move
		to stepvan.Rank
	}
	var all []one
	for _, r := range receivers {
		if err := checkRank("the receivers", r.Rank); err != nil {
			return nil, err
		}
		for i := range r.Moves.Len() {
			all = append(all, one{r.Moves.At(i), r.Rank})
		}
	}
	slices.SortStableFunc(all, func(a, b one) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), slices.Compare(a.Src[:], b.Src[:]), slices.Compare(a.Extent[:], b.Extent[:]))
	})
	var routes []Route
	for i := range all {
		v := &all[i]
		if v.Rank != all[0].Rank {
			return nil, errs.Invalid("layout: the moves are of different tensors (got %d and %d dimensions): group one tensor at a time",
				all[0].Rank, v.Rank)
		}
		if n := len(routes); n == 0 || routes[n-1].Source != v.Source || routes[n-1].Src != v.Src || routes[n-1].Extent != v.Extent {
			routes = append(routes, Route{Source: v.Source, Rank: v.Rank, Src: v.Src, Extent: v.Extent})
		}
		last := &routes[len(routes)-1]
		last.Targets = append(last.Targets, Landing{v.to, v.Dst})
	}
	return routes, nil
}
